#!/usr/bin/env python3
"""`sherd report` from outside: the page is whole, safe and says what the files say.  usage: report_check.py SHERD"""
import base64
import hashlib
import html.parser
import json
import math
import os
import random
import re
import stat
import subprocess
import sys
import tempfile
import unittest

SHERD = None
VOID = {"meta", "br", "hr", "img", "input", "link"}
SHAPES = {"path", "svg", "title", "desc"}  # SVG's, of which path may be closed at once


class Page(html.parser.HTMLParser):
    """Checks that every element is closed in order, and keeps what there is."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text, self.ids = [], [], {}, []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag not in VOID:
            self.open.append((tag, attrs.get("id"), len(self.elements) - 1))

    def handle_startendtag(self, tag, attrs):
        assert tag in SHAPES, f"<{tag}/> is no void element of HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        for tag, name, index in self.open:
            self.text.setdefault(index, []).append(data)

    def all(self, tag, **wanted):
        return [(i, a) for i, (t, a) in enumerate(self.elements) if t == tag and all(a.get(k) == v for k, v in wanted.items())]

    def words(self, index):
        return "".join(self.text.get(index, []))

    def section(self, name):
        """The text of the element with this id."""
        return next((self.words(i) for i, (_, a) in enumerate(self.elements) if a.get("id") == name), None)

    def data(self):
        return json.loads(self.section("data"))

    def paths(self, figure, classes):
        """The d of paths with these classes within a figure."""
        start = next(i for i, (t, a) in enumerate(self.elements) if t == "figure" and a.get("id") == figure)
        end = next((i for i, (t, _) in enumerate(self.elements[start + 1:], start + 1) if t == "figure"), len(self.elements))
        return [a["d"] for t, a in self.elements[start:end] if t == "path" and set(classes.split()) <= set(a.get("class", "").split())]


def points(path):
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def word(value):
    return value if not isinstance(value, float) or math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def row(step, loss=2.0, **more):
    values = dict(step=step, loss=loss, grad_norm=1.0, lr=1e-3, tokens=100, tokens_seen=100 * (step + 1), step_ms=10.0, data_ms=1.0, compute_ms=6.0, exposed_comm_ms=1.0,
                  optimizer_ms=1.0, save_wait_ms=0.5, other_ms=0.5, tokens_per_s=10000.0, peak_bytes=1 << 20, data_ready=2)
    values.update(more)
    return json.dumps({k: word(v) for k, v in values.items()})


# How linear RGB looks to people without working cones of one kind: Machado, Oliveira, Fernandes 2009, severity 1.
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))}


def linear(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def contrast(one, other):
    """As WCAG 2 has it."""
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05 for r, g, b in (linear(one), linear(other)))
    return light[1] / light[0]


def difference(one, other, sight):
    """Of two colours in CIE L*a*b*: 2.3 is just noticeable side by side."""
    labs = []
    for colour in (linear(one), linear(other)):
        r, g, b = (min(1, max(0, sum(m * c for m, c in zip(row, colour)))) for row in SIGHTS[sight])
        x, y, z = ((t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116)
                   for t in ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089))
        labs.append((116 * y - 16, 500 * (x - y), 200 * (y - z)))
    return math.dist(*labs)


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = self.folder.name

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def rows(self, lines):
        self.write("metrics.jsonl", "".join(line + "\n" for line in lines))

    def run_report(self, *args):
        return subprocess.run([SHERD, "report", *args], capture_output=True, timeout=120)

    def page(self):
        done = self.run_report(self.dir, "-o", "-")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        text = done.stdout.decode("utf-8")  # strictly
        page = Page(text)
        self.assertEqual(len(page.ids), len(set(page.ids)), "ids are unique")
        page.raw = text
        return page

    def test_a_page_needs_nothing_else(self):
        self.rows([row(s, 3 - s / 10) for s in range(10)])
        page = self.page()
        for tag, attrs in page.elements:
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "embed"))
            self.assertNotIn("src", attrs)
            self.assertTrue(attrs.get("href", "#").startswith("#"))
            self.assertFalse([name for name in attrs if name.startswith("on")])
        self.assertNotRegex(page.raw.replace("http-equiv", ""), r"(?i)https?:|@import|url\(")

    def test_only_the_page_s_own_script_may_run(self):
        self.rows([row(0)])
        page = self.page()
        policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0][1]["content"]
        script = [page.words(i) for i, a in page.all("script") if "type" not in a]
        self.assertEqual(len(script), 1)
        digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
        self.assertIn(f"script-src 'sha256-{digest}'", policy)
        self.assertIn("default-src 'none'", policy)

    def test_lines_are_at_the_values(self):
        losses = [5, 1, 3.5, 2, 2.25, 4]
        self.rows([row(s, float(v)) for s, v in enumerate(losses)])
        page = self.page()
        drawn = points(page.paths("loss", "line c1")[0])
        self.assertEqual([x for x, _ in drawn], [0, 200, 400, 600, 800, 1000])
        # An affine map, downwards: fixed by two of them, right for the others.
        top, bottom = drawn[0][1], drawn[1][1]
        for (_, y), loss in zip(drawn, losses):
            self.assertAlmostEqual(y, bottom + (loss - 1) / 4 * (top - bottom), delta=0.11)
        self.assertTrue(0 <= top < bottom <= 1000)
        self.assertEqual(page.data()["charts"][0]["lines"][0]["value"], losses)

    def test_the_grid_is_where_its_numbers_say(self):
        self.rows([row(s, 1.0 + s) for s in range(5)])
        page = self.page()
        grid = [float(y) for y in re.findall(r"M0 ([\d.]+)h1000", page.paths("loss", "grid")[0])]
        start = next(i for i, (t, a) in enumerate(page.elements) if a.get("id") == "loss")
        end = next(i for i, (t, a) in enumerate(page.elements[start:], start) if t == "details")
        ticks = [(float(page.words(i)), float(a["style"][7:-1])) for i, (t, a) in enumerate(page.elements[:end]) if i > start and a.get("class") == "y"]
        drawn = points(page.paths("loss", "line")[0])
        for y, (value, bottom) in zip(grid, ticks):
            self.assertAlmostEqual(y, 1000 - 10 * bottom, delta=0.2)
            want = drawn[0][1] + (value - 1) / 4 * (drawn[4][1] - drawn[0][1])
            self.assertAlmostEqual(y, want, delta=0.3)
        self.assertGreaterEqual(len(grid), 3)

    def test_values_that_are_not_finite_are_gaps_with_marks(self):
        nan = float("nan")
        self.rows([row(0, 1.0), row(1, nan), row(2, 2.0), row(3, math.inf), row(4, 1.0), row(5, 3.0)])
        page = self.page()
        self.assertEqual(page.paths("loss", "line c1")[0].count("M"), 3)
        self.assertEqual(re.findall(r"M([\d.]+) 0v", page.paths("loss", "odd")[0]), ["200.0", "600.0"])
        self.assertIn("is not finite in 2 steps, first in step 1", page.section("loss"))

    def test_a_run_without_any_finite_value_says_so(self):
        self.rows([row(s, float("nan"), grad_norm=math.inf) for s in range(50)])
        page = self.page()
        self.assertIn("no finite value", page.section("loss"))
        self.assertIn("not finite", page.words(page.all("header")[0][0]))
        self.assertEqual(page.paths("loss", "line"), [])
        self.assertEqual(page.paths("loss", "odd")[0].count("M"), 50)

    def test_one_row_and_none_are_pages_too(self):
        self.rows([row(7)])
        page = self.page()
        self.assertEqual(points(page.paths("loss", "line")[0]), [(500, points(page.paths("loss", "line")[0])[0][1])])
        self.write("metrics.jsonl", "")
        page = self.page()
        self.assertIn("no rows yet", page.raw)
        self.assertEqual(page.all("figure"), [])

    def test_damaged_lines_are_counted_and_the_others_shown(self):
        good = [row(s, 3.0 - s / 10) for s in range(6)]
        lines = [good[0], "not json", good[1], '{"loss": 1}', '{"step": "x"}', good[2], good[1], '{"step": -3}', '{"step": 1e99}', "[]", good[3], good[4][:40], good[5]]
        self.write("metrics.jsonl", ("\n".join(lines) + "\n").encode() + b'\xff\xfe\n{"step": 9, "lo')
        page = self.page()
        said = page.section("unread")
        self.assertIn("metrics.jsonl: 9 lines could not be used, the first of them line 2; the other 5 are shown", said)
        self.assertIn("the last line is not whole", said)
        self.assertEqual(page.data()["charts"][0]["lines"][0]["value"], [3, 2.9, 2.8, 2.7, None, 2.5])

    def test_other_files_that_are_damaged_are_said_and_do_no_harm(self):
        self.rows([row(0)])
        self.write("provenance.json", '{"job": ')
        self.write("failure.json", "[1, 2]")
        self.write("events.jsonl", '{"event": 5}\nx\n{"event": "start", "time": "late", "step": 1e300, "rank": []}\n')
        os.mkdir(os.path.join(self.dir, "alerts.jsonl"))
        self.write("checkpoints", "a file")
        page = self.page()
        said = page.section("unread")
        for part in ("provenance.json: JSON, line 1", "failure.json: JSON", "events.jsonl: 2 lines", "alerts.jsonl: ", "checkpoints: "):
            self.assertIn(part, said)
        self.assertIn("start", page.section("events"))

    def test_what_comes_from_files_is_never_markup(self):
        bad = '</script><script>alert(1)</script><img src=x onerror="a()">\'&amp;'
        self.rows([row(s, **{bad[:40]: 1.0, "x": {bad[:9]: s}}) for s in range(3)])
        self.write("events.jsonl", json.dumps({"time": 1, "event": bad, "step": 1, "text": bad}) + "\n" + json.dumps({"event": "end", "text": bad + "\x1b[31m"}) + "\n")
        self.write("alerts.jsonl", json.dumps({bad: [bad, {bad: bad}]}) + "\n")
        self.write("provenance.json", json.dumps({"job": {"name": bad, "model": {"family": bad}}, bad: bad}))
        self.write("failure.json", json.dumps({"message": bad, "host": bad}))
        page = self.page()
        self.assertEqual([a for _, a in page.all("script")], [{"type": "application/json", "id": "data"}, {}])
        self.assertEqual(page.all("img"), [])
        self.assertEqual(page.words(page.all("h1")[0][0]), bad)
        self.assertIn(bad, page.section("failure"))
        self.assertIn(bad, page.section("alerts"))
        self.assertNotIn("\x1b", page.raw)
        self.assertIn(bad[:40], page.section("others"))

    def test_a_folder_s_name_may_be_any_bytes(self):
        odd = os.path.join(self.dir.encode(), b"a<b>\"'&\xff\xc3(")
        os.mkdir(odd)
        with open(os.path.join(odd, b"metrics.jsonl"), "w") as file:
            file.write(row(0) + "\n")
        done = self.run_report(odd)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(odd, b"report.html"), "rb") as file:
            page = Page(file.read().decode("utf-8"))
        self.assertTrue(page.words(page.all("h1")[0][0]).endswith("a<b>\"'&\ufffd\ufffd("))

    def test_the_summary_is_what_the_rows_say(self):
        rows = [row(s, 4.0 - s / 100, **({"validation_loss": 5.0 + abs(s - 150) / 100} if s % 50 == 0 else {})) for s in range(200)]
        self.rows(rows)
        self.write("provenance.json", json.dumps({"job": {"name": "small", "train": {"steps": 200}}}))
        self.write("events.jsonl", '{"time": 1772368205, "event": "start", "step": 0, "text": "hello"}\n{"time": 1772371805, "event": "end", "step": 200, "text": ""}\n')
        page = self.page()
        tiles = page.words(page.all("dl", **{"class": "tiles"})[0][0])
        for part in ("Best validation loss5at step 150", "Last training loss2.01at step 199", "Steps200of 200", "10k/s20k in all", "0:021:00:00 by the clock", "1.0 MiB"):
            self.assertIn(part, tiles)
        self.assertIn("done", page.words(page.all("p", **{"class": "outcome"})[0][0]))

    def test_how_it_ended_is_told_by_the_last_event(self):
        self.rows([row(0)])
        for events, want in ((["start"], "no end recorded"), (["start", "end"], "done"), (["start", "failure", "restart"], "no end recorded"), (["start", "failure", "save"], "failed"),
                             (["start", "stop"], "stopped"), (["end", "resume", "skip", "failure"], "failed")):
            self.write("events.jsonl", "".join(json.dumps({"time": 1 + i, "event": e, "step": 1, "text": "why"}) + "\n" for i, e in enumerate(events)))
            page = self.page()
            self.assertIn(want, page.words(page.all("p", **{"class": "outcome"})[0][0]), events)

    def test_a_failure_is_told_first_and_in_words(self):
        self.rows([row(0)])
        self.write("failure.json", json.dumps({"time": 1772368205, "rank": 3, "world_size": 4, "host": "alpha", "signal": "KILL", "exit_code": None, "cause": "a cause", "error": "a cause", "step": 12, "last_lines": ["a line", "another"],
                                               "ranks": [{"rank": i, "end": "ended as told", "told": None} for i in range(4)]}))
        self.write("events.jsonl", '{"event": "start"}\n{"event": "failure"}\n')
        page = self.page()
        said = page.section("failure")
        self.assertTrue(said.strip().startswith("Failure\nRank 3 of 4 on alpha, killed by signal KILL, step 12\na cause\na line"))
        self.assertEqual(said.count("a cause"), 1)
        self.assertIn("2026-03-01 12:30:05 UTC", said)
        self.assertNotIn("null", said)
        rows = [i for i, (t, _) in enumerate(page.elements) if t == "tr"]
        self.assertEqual(sum("ended as told" in page.words(i) for i in rows), 4)
        self.assertLess(page.ids.index("failure"), page.ids.index("loss"))
        self.write("events.jsonl", '{"event": "start"}\n{"event": "failure"}\n{"event": "resume"}\n{"event": "end"}\n')
        page = self.page()
        self.assertIn("An earlier failure", page.section("failure"))
        self.assertIn("done", page.words(page.all("p", **{"class": "outcome"})[0][0]))

    def test_a_job_that_was_started_again_has_not_failed(self):
        self.rows([row(0)])
        self.write("failure.json", '{"rank": 1, "time": 1000}')
        for time, want in ((999, "failed"), (1001, "no end recorded")):
            self.write("events.jsonl", json.dumps({"time": 900, "event": "failure"}) + "\n" + json.dumps({"time": time, "event": "resume"}) + "\n")
            page = self.page()
            self.assertIn(want, page.words(page.all("p", **{"class": "outcome"})[0][0]))
            self.assertEqual("An earlier failure" in page.section("failure"), want != "failed")
        self.write("events.jsonl", "")
        page = self.page()
        self.assertIn("failed", page.words(page.all("p", **{"class": "outcome"})[0][0]))

    def test_an_alert_shows_its_batch_as_a_table(self):
        self.rows([row(0)])
        batch = [{"number": i, "file": f"data-{i}.bin", "sequence": 10 * i} for i in range(14)]
        self.write("alerts.jsonl", json.dumps({"step": 1234, "kind": "nonfinite", "action": "skip", "rank": 2, "loss": "nan", "batch": batch}) + "\n")
        page = self.page()
        said = page.section("alerts")
        self.assertIn("row 1,234, nonfinite, skip, rank 2", said)
        self.assertIn("14 rows", said)
        self.assertIn("data-13.bin", said)

    def test_of_a_large_batch_the_examples_to_look_at_are_shown(self):
        """Every alert has all of its batch, some megabytes; neither the page nor the reading of it may have."""
        self.rows([row(0)])
        examples = [{"number": i, "rank": i // 32 % 4, "micro_step": i // 128, "file": "/data/set/part-%05d.bin" % i, "sequence": i, "token": 1024 * i} for i in range(40000)]
        known = {"step": 1, "kind": "nonfinite", "rank": 2, "micro_step": 3, "batch": examples}
        text = json.dumps(known) + "\n"
        self.assertGreater(len(text), 4 << 20)
        self.write("alerts.jsonl", text)
        said = self.page().section("alerts")
        first = 3 * 128 + 2 * 32
        for number, shown in ((first - 1, False), (first, True), (first + 15, True), (first + 16, False), (0, False)):
            self.assertEqual("part-%05d.bin" % number in said, shown, number)
        self.assertIn("batch_left_out39984", said.replace(",", ""))
        line = json.dumps({"step": 2, "kind": "outlier", "batch": examples[:4096]}) + "\n"
        with open(os.path.join(self.dir, "alerts.jsonl"), "w") as file:
            for _ in range(200):
                file.write(line)
        reader = subprocess.Popen([SHERD, "report", self.dir], stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(reader.pid, 0)
        reader.returncode = os.waitstatus_to_exitcode(code)
        self.assertEqual(reader.returncode, 0)
        self.assertLess(used.ru_maxrss, 600 << 10)
        said = self.page().section("alerts")
        for number, shown in ((0, True), (15, True), (16, False)):
            self.assertEqual("part-%05d.bin" % number in said, shown, number)
        self.assertLess(os.path.getsize(os.path.join(self.dir, "report.html")), 2 << 20)

    def test_no_damage_of_any_file_breaks_the_page(self):
        make = random.Random(7)
        files = {"metrics.jsonl": "".join(row(s, validation_loss=1.0, memory_bytes=2) + "\n" for s in range(20)), "provenance.json": json.dumps({"job": {"name": "n", "train": {"steps": 9, "clip": 1}}}),
                 "events.jsonl": "".join(json.dumps({"time": 1e9 + i, "event": e, "step": i, "rank": i}) + "\n" for i, e in enumerate(("start", "save", "resume", "failure"))),
                 "alerts.jsonl": json.dumps({"step": 1, "batch": [{"a": 1}, {"a": 2}]}) + "\n", "failure.json": json.dumps({"rank": 1, "host": "h", "ranks": [{"rank": 0}, {"rank": 1}]})}
        for _ in range(60):
            for name, text in files.items():
                damaged = bytearray(text.encode())
                for _ in range(make.choice((0, 1, 3, 10))):
                    at = make.randrange(len(damaged))
                    if make.random() < 0.5:
                        damaged[at] = make.choice((make.randrange(256), *b'<>"&\n{}[]9eE-.,:'))
                    else:
                        damaged[at:at + make.randrange(1, 9)] = make.choice((b"", b"1e308", b"-1e-308", b"null", b"{}", b"9223372036854775807", b"\\u0000", b"\\ud800", b'"nan"'))
                self.write(name, bytes(damaged))
            self.page()

    def test_very_many_rows_make_a_small_page_that_keeps_every_spike(self):
        count, spikes = 120000, {777: 50.0, 60001: 60.0, 119999: 70.0}
        self.rows([row(s, spikes.get(s, 2.0), grad_norm=float(s % 100)) for s in range(count)])
        page = self.page()
        self.assertLess(len(page.raw), 4 << 20)
        data = page.data()
        self.assertLessEqual(data["columns"], 1000)
        high = data["charts"][0]["lines"][0]["high"]
        for step, value in spikes.items():
            self.assertEqual(high[step // data["width"]], value)
        self.assertEqual(sum(h > 2 for h in high), 3)
        grad = next(c for c in data["charts"] if max(v or 0 for v in c["lines"][0]["value"]) > 40 and c["lines"][0]["name"] == "norm")
        self.assertEqual({min(grad["lines"][0]["low"]), max(grad["lines"][0]["high"])}, {0, 99})

    def test_very_many_events_are_kept_at_both_ends(self):
        self.rows([row(s) for s in range(100)])
        self.write("events.jsonl", "".join(json.dumps({"time": 1 + i, "event": "skip", "step": i % 100, "text": f"number {i};"}) + "\n" for i in range(5000)))
        page = self.page()
        said = page.section("events")
        self.assertIn("4000 more events", said)
        for number in (0, 499, 4500, 4999):
            self.assertIn(f"number {number};", said)
        for number in (500, 4499):
            self.assertNotIn(f"number {number};", said)
        self.assertIn("skip 5000", page.section("lanes"))

    def test_fields_of_other_versions_are_shown_under_their_names(self):
        self.rows([row(s, colour_of_noise=s * s, inner={"deep": s, "text": "x"}, words="x", nothing=None, list=[1, 2]) for s in range(4)])
        others = self.page().section("others")
        self.assertIn("colour_of_noise", others)
        self.assertIn("inner.deep", others)
        self.assertNotIn("words", others)

    def test_parts_of_steps_are_stacked_to_their_sum(self):
        self.rows([row(s) for s in range(3)])
        page = self.page()
        edges = [points(d) for d in page.paths("time", "part")]
        self.assertEqual(len(edges), 6)
        for lower, upper in zip(edges, edges[1:]):  # each begins where the one below it ends
            self.assertEqual(lower[:3], upper[:2:-1])
        base, top = edges[0][-1][1], edges[-1][0][1]
        shares = [round((part[-1][1] - part[0][1]) / (base - top), 2) for part in edges]
        self.assertEqual(shares, [0.6, 0.1, 0.1, 0.1, 0.05, 0.05])
        self.assertIn("compute 60.0 %", page.section("time"))

    def test_a_rare_value_far_beyond_all_others_is_marked_and_leaves_room_for_them(self):
        self.rows([row(s, tokens_per_s=5e6 if s == 30 else 1000.0 + s) for s in range(60)])
        page = self.page()
        self.assertEqual(page.paths("throughput", "beyond")[0].count("M"), 1)
        self.assertIn("1 column reaches beyond the scale, up to 5M", page.section("throughput"))
        heights = [y for _, y in points(page.paths("throughput", "line")[0])]
        self.assertEqual(heights[30], 0)
        self.assertLess(max(heights[:30] + heights[31:]), 400, "the others are not flat on the ground")
        self.assertEqual(page.paths("loss", "beyond"), [])

    def test_colours_are_told_apart_by_every_sight(self):
        self.rows([row(s) for s in range(3)])
        page = self.page()
        schemes = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", page.raw, re.S)]
        self.assertEqual(len(schemes), 3)
        self.assertEqual(schemes[0], schemes[2], "paper is light")
        stack = [f"c{n}" for n in re.findall(r'class="part c(\d)"', page.raw)]
        self.assertEqual(len(set(stack)), 6)
        for colours in schemes:
            for name in ("text", "quiet", "c0", "c1", "c2", "c4", "good", "bad", "warned"):  # words
                self.assertGreaterEqual(min(contrast(colours[name], colours["ground"]), contrast(colours[name], colours["raised"])), 4.5, name)
            for name in stack:
                self.assertGreaterEqual(contrast(colours[name], colours["ground"]), 3, name)
            for sight in SIGHTS:
                for i, name in enumerate(stack):
                    for k, other in enumerate(stack[:i]):
                        apart = difference(colours[name], colours[other], sight)
                        self.assertGreaterEqual(apart, 20 if i - k == 1 else 14, f"{name} and {other}, {sight}")

    def test_numbers_are_there_without_the_picture_or_the_script(self):
        self.rows([row(s, float(s)) for s in range(100)])
        page = self.page()
        for i, attrs in page.all("svg"):
            self.assertEqual(attrs["role"], "img")
            named = attrs.get("aria-labelledby", "").split()
            self.assertTrue(attrs.get("aria-label") or all(page.section(name) for name in named) and named)
        table = page.section("loss").split("Numbers")[1]
        self.assertIn("0 to 4", table)
        self.assertRegex(table, r"95 to 99\s*97\s*95 to 99")

    def test_the_page_is_written_whole_or_not_at_all(self):
        self.rows([row(0)])
        done = self.run_report(self.dir)
        self.assertEqual(done.returncode, 0)
        path = os.path.join(self.dir, "report.html")
        self.assertIn(path.encode(), done.stdout)
        self.assertEqual(sorted(os.listdir(self.dir)), ["metrics.jsonl", "report.html"])
        self.assertFalse(os.stat(path).st_mode & stat.S_IXUSR)
        done = self.run_report(self.dir, "-o", os.path.join(self.dir, "no", "where.html"))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)
        if os.path.exists("/dev/full"):
            done = self.run_report(self.dir, "-o", "/dev/full")
            self.assertEqual(done.returncode, 1)
        self.assertEqual(sorted(os.listdir(self.dir)), ["metrics.jsonl", "report.html"])

    def test_folders_that_are_no_runs_are_refused(self):
        done = self.run_report(self.dir)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"has no metrics.jsonl", done.stderr)
        self.assertEqual(self.run_report(os.path.join(self.dir, "nowhere")).returncode, 3)
        self.assertEqual(self.run_report().returncode, 2)
        self.assertEqual(self.run_report(self.dir, self.dir).returncode, 2)
        os.mkfifo(os.path.join(self.dir, "metrics.jsonl"))
        self.assertEqual(self.run_report(self.dir).returncode, 1, "and does not hang")


if __name__ == "__main__":
    SHERD = sys.argv.pop(1)
    unittest.main()
