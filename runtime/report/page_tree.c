/* A JSON value for people: keys beside values, lists of like objects as tables. */
#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/report/markup.h"
#include "runtime/report/page.h"

#include <string.h>

/* Of more values, deeper ones and longer texts the rest is left out. */
enum { VALUES = 4000, DEPTH = 12, TEXT_BYTES = 16384, KEY_BYTES = 256 };
/* Tables with more rows are closed at first. */
enum { OPEN_ROWS = 12 };

typedef struct tree {
    shd_text *out;
    int32_t left; /* values that may follow */
    bool nulls;   /* are shown */
} tree;

static void write_value(tree *to, const json_t *value, int32_t depth);

static bool is_flat(const json_t *value) { return !json_is_object(value) && !json_is_array(value); }

static void write_scalar(tree *to, const json_t *value) {
    char *text = NULL;
    to->left--;
    if (json_is_string(value))
        shd_markup_head(to->out, json_string_value(value), TEXT_BYTES);
    else if (json_is_real(value))
        shd_markup_exact(to->out, json_real_value(value));
    else if (shd_json_print(value, 0, &text) == SHERD_OK)
        shd_markup_head(to->out, text, TEXT_BYTES);
    else
        to->out->failed = true;
    shd_free(text);
}

static void write_key(tree *to, const char *before, const char *key, const char *after) {
    shd_text_add(to->out, "%s", before);
    shd_markup_head(to->out, key, KEY_BYTES);
    shd_text_add(to->out, "%s", after);
}

/* Whether a list has objects only, all with the keys of the first one, and no lists or objects in them. */
static bool is_table(const json_t *list) {
    json_t *first = json_array_get(list, 0), *row, *value;
    const char *key;
    size_t i;
    if (json_array_size(list) < 2 || json_object_size(first) == 0) return false;
    json_array_foreach((json_t *)list, i, row) {
        if (json_object_size(row) != json_object_size(first)) return false;
        json_object_foreach(row, key, value) if (!is_flat(value) || !json_object_get(first, key)) return false;
    }
    return true;
}

static bool ends_with(const char *text, const char *ending) {
    size_t length = strlen(text), tail = strlen(ending);
    return length >= tail && !strcmp(text + length - tail, ending);
}

/* Seconds since 1970 say nothing to people, nor do many bytes; a command is told as it was given. */
static void write_member(tree *to, const char *key, const json_t *value, int32_t depth) {
    char text[SHD_NUMBER_BYTES] = "";
    double number = json_number_value(value);
    bool moment = number >= 1e9 && (!strcmp(key, "time") || !strcmp(key, "modified"));
    if (moment) shd_moment_text(number, text);
    if (!moment && number >= 1000 && ends_with(key, "bytes")) shd_size_text(number, text);
    if (*text) {
        shd_text_add(to->out, "%s", text);
    } else if (!strcmp(key, "command") && json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && to->left > 0; i++) {
            shd_text_add(to->out, i ? " " : "");
            write_value(to, json_array_get(value, i), depth + 1);
        }
    } else {
        write_value(to, value, depth + 1);
    }
}

static void write_table(tree *to, const json_t *list) {
    json_t *first = json_array_get(list, 0), *row, *value;
    const char *key;
    size_t i, count = json_array_size(list);
    shd_text_add(to->out, "<details%s><summary>%zu rows</summary><div class=\"wide\"><table><thead><tr>",
                 count <= OPEN_ROWS ? " open" : "", count);
    json_object_foreach(first, key, value) write_key(to, "<th scope=\"col\">", key, "</th>");
    shd_text_add(to->out, "</tr></thead>\n<tbody>\n");
    json_array_foreach((json_t *)list, i, row) {
        if (to->left <= 0) break;
        shd_text_add(to->out, "<tr>");
        json_object_foreach(first, key, value) {
            const json_t *cell = json_object_get(row, key);
            shd_text_add(to->out, json_is_number(cell) ? "<td class=\"number\">" : "<td>");
            if (to->nulls || !json_is_null(cell)) write_member(to, key, cell, DEPTH);
            shd_text_add(to->out, "</td>");
        }
        shd_text_add(to->out, "</tr>\n");
    }
    shd_text_add(to->out, "</tbody></table></div></details>\n");
}

/* Texts with spaces in them are lines; others, and numbers, stand in one. */
static bool has_lines(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text && strchr(text, ' ')) return true;
    }
    return false;
}

static void write_list(tree *to, const json_t *list, int32_t depth) {
    size_t count = json_array_size(list);
    bool flat = !has_lines(list);
    for (size_t i = 0; i < count; i++) flat = flat && is_flat(json_array_get(list, i));
    if (count == 0) shd_text_add(to->out, "none");
    if (count == 0) return;
    if (!flat) shd_text_add(to->out, has_lines(list) ? "<ol class=\"lines\">" : "<ol>");
    for (size_t i = 0; i < count && to->left > 0; i++) {
        shd_text_add(to->out, !flat ? "<li>" : i ? ", " : "");
        write_value(to, json_array_get(list, i), depth + 1);
        if (!flat) shd_text_add(to->out, "</li>");
    }
    if (!flat) shd_text_add(to->out, "</ol>");
}

static void write_object(tree *to, const json_t *object, int32_t depth) {
    const char *key;
    json_t *value;
    if (json_object_size(object) == 0) {
        shd_text_add(to->out, "none");
        return;
    }
    shd_text_add(to->out, "<dl class=\"tree\">\n");
    json_object_foreach((json_t *)object, key, value) {
        if (to->left <= 0) break;
        if (!to->nulls && json_is_null(value)) continue;
        write_key(to, "<div><dt>", key, "</dt><dd>");
        write_member(to, key, value, depth);
        shd_text_add(to->out, "</dd></div>\n");
    }
    shd_text_add(to->out, "</dl>\n");
}

static void write_value(tree *to, const json_t *value, int32_t depth) {
    if (depth >= DEPTH || is_flat(value))
        write_scalar(to, value);
    else if (is_table(value))
        write_table(to, value);
    else if (json_is_array(value))
        write_list(to, value, depth);
    else
        write_object(to, value, depth);
}

void shd_page_tree(shd_text *out, const json_t *value, bool nulls) {
    tree to = {.out = out, .left = VALUES, .nulls = nulls};
    write_value(&to, value, 0);
    if (to.left <= 0) shd_text_add(out, "<p class=\"note\">The rest is left out.</p>\n");
}
