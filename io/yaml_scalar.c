#include "io/yaml_scalar.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

static size_t digits(const char *text) { return strspn(text, "0123456789"); }

static const char *after_sign(const char *text) { return text + (*text == '-' || *text == '+'); }

/* [-+]? digits */
static bool is_int(const char *text) {
    text = after_sign(text);
    size_t count = digits(text);
    return count > 0 && text[count] == 0;
}

/* [-+]? ( digits [. digits?]? | . digits ) ( [eE] [-+]? digits )?, or .inf, .nan */
static bool is_real(const char *text) {
    static const char *const special[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const not_a_number[] = {".nan", ".NaN", ".NAN", NULL};
    if (is_one_of(text, not_a_number) || is_one_of(after_sign(text), special)) return true;
    text = after_sign(text);
    size_t whole = digits(text), fraction = 0;
    text += whole;
    if (*text == '.') {
        fraction = digits(++text);
        text += fraction;
    }
    if (whole + fraction == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text = after_sign(text + 1);
        if (digits(text) == 0) return false;
        text += digits(text);
    }
    return *text == 0;
}

/* A decimal number with a zero before other digits, 0x…, 0o…, digits with _ or : between them. */
static bool is_odd(const char *text) {
    text = after_sign(text);
    if (text[0] < '0' || text[0] > '9') return false;
    if (text[0] == '0' && strchr("xXoObB", text[1]) && text[1])
        return strspn(text + 2, "0123456789abcdefABCDEF_") == strlen(text + 2);
    if (text[0] == '0' && text[1] >= '0' && text[1] <= '9') return is_int(text) || is_real(text);
    return strspn(text, "0123456789_:.") == strlen(text) && strpbrk(text, "_:") != NULL;
}

/* strtod with a decimal point, whatever locale the program runs in. */
static double read_real(const char *text) {
    static const char *const not_a_number[] = {".nan", ".NaN", ".NAN", NULL};
    if (is_one_of(text, not_a_number)) return NAN;
    if (strcasecmp(after_sign(text), ".inf") == 0) return *text == '-' ? -INFINITY : INFINITY;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return strtod(text, NULL);
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
}

static bool has_nonzero_digit(const char *text) {
    for (; *text && *text != 'e' && *text != 'E'; text++)
        if (*text >= '1' && *text <= '9') return true;
    return false;
}

shd_scalar shd_scalar_read(const shd_yaml_node *node) {
    static const char *const nulls[] = {"null", "Null", "NULL", "~", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    const char *text = node->text;
    shd_scalar scalar = {.kind = SHD_SCALAR_TEXT};
    if (!node->plain) return scalar;
    if (*text == 0) {
        scalar.kind = SHD_SCALAR_EMPTY;
    } else if (is_one_of(text, nulls)) {
        scalar.kind = SHD_SCALAR_NULL;
    } else if (is_one_of(text, trues) || is_one_of(text, falses)) {
        scalar.kind = SHD_SCALAR_BOOL;
        scalar.boolean = is_one_of(text, trues);
    } else if (is_odd(text)) {
        scalar.kind = SHD_SCALAR_ODD;
    } else if (is_int(text)) {
        scalar.kind = SHD_SCALAR_INT;
        errno = 0;
        scalar.integer = strtoll(text, NULL, 10);
        scalar.overflow = errno == ERANGE;
        scalar.real = read_real(text);
    } else if (is_real(text)) {
        scalar.kind = SHD_SCALAR_REAL;
        scalar.real = read_real(text);
        scalar.overflow =
            (isinf(scalar.real) && has_nonzero_digit(text)) || (scalar.real == 0 && has_nonzero_digit(text));
    }
    return scalar;
}

bool shd_scalar_is_old_boolean(const char *text, bool *meaning) {
    static const char *const yes[] = {"yes", "on", "y"};
    static const char *const no[] = {"no", "off", "n"};
    for (int i = 0; i < 3; i++) {
        *meaning = strcasecmp(text, yes[i]) == 0;
        if (*meaning || strcasecmp(text, no[i]) == 0) return true;
    }
    return false;
}
