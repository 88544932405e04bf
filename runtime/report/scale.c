#include "runtime/report/scale.h"

#include <math.h>

shd_scale shd_scale_make(double low, double high, bool from_zero, bool logarithmic) {
    /* Differences of the largest numbers are not finite. */
    low = fmax(low, -1e300);
    high = fmin(high, 1e300);
    if (logarithmic) {
        double room = fmax(0.04 * (log(high) - log(low)), 0.02);
        return (shd_scale){.low = low * exp(-room), .high = high * exp(room), .logarithmic = true};
    }
    if (from_zero) {
        low = fmin(low, 0);
        high = fmax(high, 0);
    }
    double range = high - low;
    if (!(range > 1e-9 * fmax(fabs(low), fabs(high)))) {
        double around = high != 0 ? fabs(high) / 2 : 1;
        return (shd_scale){.low = from_zero && low >= 0 ? 0 : low - around, .high = high + around};
    }
    return (shd_scale){.low = low == 0 && from_zero ? 0 : low - 0.04 * range, .high = high + 0.06 * range};
}

double shd_scale_place(const shd_scale *scale, double value) {
    double place;
    if (scale->logarithmic)
        place = value > 0 ? (log(value) - log(scale->low)) / (log(scale->high) - log(scale->low)) : 0;
    else
        place = (value - scale->low) / (scale->high - scale->low);
    return fmin(fmax(place, 0), 1);
}

/* 1, 2 or 5 times a power of ten, the least that is not below `least`. */
static double round_up(double least) {
    double power = pow(10, floor(log10(least)));
    double times = least / power;
    return power * (times <= 1.0000001 ? 1 : times <= 2.0000001 ? 2 : times <= 5.0000001 ? 5 : 10);
}

static int32_t log_ticks(const shd_scale *scale, int32_t wanted, double ticks[SHD_TICKS]) {
    static const double few[] = {1}, some[] = {1, 3}, many[] = {1, 2, 5};
    double decades = log10(scale->high) - log10(scale->low);
    const double *times = decades >= wanted ? few : decades >= wanted / 2.0 ? some : many;
    int32_t per_decade = times == few ? 1 : times == some ? 2 : 3, count = 0;
    int every = (int)fmax(1, ceil(decades / wanted));
    int first = (int)floor(log10(scale->low)), last = (int)ceil(log10(scale->high));
    for (int decade = first; decade <= last; decade++) {
        if (decade % every) continue;
        for (int32_t i = 0; i < per_decade && count < SHD_TICKS; i++) {
            double tick = times[i] * pow(10, decade);
            if (tick >= scale->low && tick <= scale->high) ticks[count++] = tick;
        }
    }
    return count;
}

int32_t shd_scale_ticks(const shd_scale *scale, int32_t wanted, double ticks[SHD_TICKS]) {
    if (scale->logarithmic) {
        int32_t count = log_ticks(scale, wanted, ticks);
        if (count >= 2) return count;
    }
    double step = round_up((scale->high - scale->low) / wanted);
    int32_t count = 0;
    for (double k = ceil(scale->low / step - 1e-9); k * step <= scale->high + 1e-9 * step && count < SHD_TICKS; k++)
        ticks[count++] = k * step + 0; /* no -0 */
    return count;
}
