// Readouts: the values under the pointer, and one cursor through all plots. Without it the page only lacks these.
(function () {
    "use strict";
    var source = document.getElementById("data");
    if (!source) return;
    var data = JSON.parse(source.textContent), plots = [], box = null, active = null, column = 0;

    function element(kind, className, text) {
        var made = document.createElement(kind);
        made.className = className;
        if (text !== undefined) made.textContent = text;
        return made;
    }
    function grouped(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }
    function span(seconds) {
        var s = Math.round(seconds), two = function (n) { return (n < 10 ? "0" : "") + n; };
        var h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
        return h ? h + ":" + two(m) + ":" + two(s % 60) : m + ":" + two(s % 60);
    }
    function number(v) {
        if (v === null) return "\u2013";
        var a = Math.abs(v);
        return a >= 1e5 || (a > 0 && a < 1e-3) ? v.toExponential(3) : String(Number(v.toPrecision(5)));
    }
    function firstOf(c) { return data.first + c * data.width; }
    function lastOf(c) { return Math.min(firstOf(c) + data.width - 1, data.last); }
    function place(c) {
        if (data.last === data.first) return 0.5;
        return ((firstOf(c) + lastOf(c)) / 2 - data.first) / (data.last - data.first);
    }
    function nearest(share) {
        var step = data.first + share * (data.last - data.first);
        var c = Math.round((step - data.first - (data.width - 1) / 2) / data.width);
        return Math.max(0, Math.min(data.columns - 1, c));
    }

    function title(c) {
        var text = firstOf(c) === lastOf(c) ? "step " + grouped(firstOf(c)) : "steps " + grouped(firstOf(c)) + " to " + grouped(lastOf(c));
        return data.elapsed.length ? text + ", after " + span(data.elapsed[c]) : text;
    }
    // A value that comes every now and then holds until the next one.
    function told(line, c) {
        while (line.sparse && c > 0 && line.value[c] === null) c--;
        return c;
    }
    function row(chart, line, at) {
        var c = told(line, at), made = element("div", ""), text = line.name + " " + number(line.value[c]);
        if (line.value[c] !== null && chart.unit) text += " " + chart.unit;
        if (c < at) text += " at step " + grouped(firstOf(c));
        if (line.low && line.low[c] !== null && line.low[c] < line.high[c])
            text += " (" + number(line.low[c]) + " to " + number(line.high[c]) + ")";
        made.appendChild(element("i", "swatch c" + line.colour));
        made.appendChild(document.createTextNode(text));
        return made;
    }
    function hide() {
        plots.forEach(function (plot) { plot.cursor.hidden = true; });
        if (box) box.remove();
        box = active = null;
    }
    function show(plot, c) {
        var chart = data.charts[Number(plot.node.dataset.chart)], at = place(c);
        column = c;
        plots.forEach(function (other) {
            other.cursor.hidden = false;
            other.cursor.style.left = at * 100 + "%";
        });
        if (!box || active !== plot) {
            if (box) box.remove();
            box = element("div", "readout");
            box.setAttribute("role", "status");
            plot.node.appendChild(box);
        }
        active = plot;
        box.textContent = "";
        box.appendChild(element("div", "", title(c)));
        chart.lines.forEach(function (line) { box.appendChild(row(chart, line, c)); });
        // Beside the cursor, on the side with more room.
        var x = at * plot.node.clientWidth, width = box.offsetWidth;
        box.style.left = (at < 0.5 ? Math.min(x + 12, plot.node.clientWidth + 100 - width) : Math.max(x - width - 12, -36)) + "px";
    }
    function follow(plot, event) {
        var edges = plot.node.getBoundingClientRect(), share = (event.clientX - edges.left) / edges.width;
        if (share < -0.03 || share > 1.03) hide();
        else show(plot, nearest(share));
    }
    function step(plot, event) {
        var moves = {ArrowLeft: column - 1, ArrowRight: column + 1, Home: 0, End: data.columns - 1};
        if (event.key === "Escape") hide();
        if (!(event.key in moves)) return;
        event.preventDefault();
        show(plot, Math.max(0, Math.min(data.columns - 1, moves[event.key])));
    }

    Array.prototype.forEach.call(document.querySelectorAll(".plot"), function (node) {
        var plot = {node: node, cursor: element("div", "cursor")};
        plot.cursor.hidden = true;
        node.appendChild(plot.cursor);
        plots.push(plot);
        if (node.dataset.chart === undefined) return;
        node.addEventListener("pointermove", follow.bind(null, plot));
        node.addEventListener("pointerdown", follow.bind(null, plot));
        node.addEventListener("pointerleave", hide);
        node.addEventListener("keydown", step.bind(null, plot));
        node.addEventListener("blur", hide);
    });
})();
