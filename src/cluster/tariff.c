/* Price and emissions of electricity over time. */
#include "cluster/tariff.h"

#include "base/digits.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/csv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int read_row(struct erg_tariff *tariff, const struct erg_csv *csv, size_t row,
                    const size_t *columns, struct erg_error *err)
{
    struct erg_rate rate;
    bool last = row + 1 == erg_csv_rows(csv);
    if (erg_csv_double(csv, row, columns[0], &rate.at_s, err) != 0)
        return -1;
    if (row == 0 ? rate.at_s != 0 : rate.at_s <= tariff->items[row - 1].at_s)
        return erg_csv_fail(csv, row, err,
                            "column 'at_s': expected times that begin at 0 and rise, got %g",
                            rate.at_s);
    if (last && row > 0 && !*erg_csv_text(csv, row, columns[1]) &&
        !*erg_csv_text(csv, row, columns[2])) {
        tariff->period_s = rate.at_s;
        return 0;
    }
    if (erg_csv_double(csv, row, columns[1], &rate.usd_per_kwh, err) != 0 ||
        erg_csv_double(csv, row, columns[2], &rate.g_co2_per_kwh, err) != 0)
        return -1;
    if (rate.g_co2_per_kwh < 0) /* prices may be negative */
        return erg_csv_fail(csv, row, err, "column 'g_co2_per_kwh': expected 0 or more, got %g",
                            rate.g_co2_per_kwh);
    ERG_PUSH(tariff, items, rate);
    return 0;
}

static int read_rows(struct erg_tariff *tariff, const struct erg_csv *csv, const char *path,
                     struct erg_error *err)
{
    static const char *const headers[] = {"at_s", "usd_per_kwh", "g_co2_per_kwh"};
    size_t columns[3];
    for (int i = 0; i < 3; i++)
        if (erg_csv_require(csv, headers[i], &columns[i], err) != 0)
            return -1;
    if (erg_csv_rows(csv) == 0)
        return erg_fail(err, ERG_FAILED, "%s: expected at least one row below the header", path);
    for (size_t row = 0; row < erg_csv_rows(csv); row++)
        if (read_row(tariff, csv, row, columns, err) != 0)
            return -1;
    return 0;
}

int erg_tariff_load(struct erg_tariff *tariff, const char *path, struct erg_error *err)
{
    struct erg_csv *csv;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    *tariff = (struct erg_tariff){.period_s = INFINITY};
    int result = read_rows(tariff, csv, path, err);
    if (result != 0)
        erg_tariff_release(tariff);
    erg_csv_free(csv);
    return result;
}

/* ---- hour by hour ---- */

#define HOUR_S 3600.0
enum { DAY_HOURS = 24 };

/* Days since 1970-01-01 (Gregorian; H. Hinnant, "chrono-compatible low-level date algorithms"). */
static long days_of(long year, long month, long day)
{
    year -= month <= 2;
    const long era = year / 400, of_era = year - era * 400;
    const long of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* "2026-11-27T18", with an optional rest, in hours since 1970; false: another text. */
static bool parse_hour(const char *text, long *hour)
{
    static const char *const ends[] = {"",        "Z",         ":00",          ":00Z",  ":00:00",
                                       ":00:00Z", ":00+00:00", ":00:00+00:00", "+00:00"};
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct erg_date_hour at;
    if (!erg_take_date_hour(&text, &at) || at.year < 1970 || at.month < 1 || at.month > 12 ||
        at.day < 1 || at.day > days[at.month - 1] || at.hour >= DAY_HOURS)
        return false;
    *hour = days_of(at.year, at.month, at.day) * DAY_HOURS + at.hour;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(text, ends[i]) == 0)
            return true;
    return false;
}

static void add_rate(struct erg_tariff *tariff, double at_s, bool carbon, double value)
{
    const struct erg_rate rate = {.at_s = at_s,
                                  .usd_per_kwh = carbon ? (double)NAN : value,
                                  .g_co2_per_kwh = carbon ? value : (double)NAN};
    ERG_PUSH(tariff, items, rate);
}

/* Hours of a table increase; gaps are unknown. */
static int read_hour(struct erg_tariff *tariff, const struct erg_csv *csv, size_t row,
                     const size_t *columns, long *next, struct erg_error *err)
{
    const char *text = erg_csv_text(csv, row, columns[0]);
    const bool carbon = strcmp(erg_csv_header(csv, columns[1]), "g_per_kwh") == 0;
    long hour;
    double value;
    bool daily = erg_parse_long(text, &hour) && hour >= 0 && hour < DAY_HOURS;
    if (!daily && !parse_hour(text, &hour))
        return erg_csv_fail(csv, row, err,
                            "column 'utc_hour' is \"%s\", expected an hour as 2026-11-27T18, or 0 "
                            "to 23 for every day",
                            text);
    if (row > 0 && daily != !isinf(tariff->period_s))
        return erg_csv_fail(csv, row, err,
                            "column 'utc_hour' is \"%s\", expected hours of every day or of "
                            "certain days, not both",
                            text);
    if (row > 0 && hour < *next)
        return erg_csv_fail(csv, row, err,
                            "column 'utc_hour' is \"%s\", expected an hour after that before it",
                            text);
    if (erg_csv_double(csv, row, columns[1], &value, err) != 0)
        return -1;
    if (carbon && value < 0)
        return erg_csv_fail(csv, row, err, "column 'g_per_kwh': expected 0 or more, got %g", value);
    if (daily)
        tariff->period_s = DAY_HOURS * HOUR_S;
    if (hour > *next)
        add_rate(tariff, (double)*next * HOUR_S, carbon, (double)NAN);
    add_rate(tariff, (double)hour * HOUR_S, carbon, value);
    *next = hour + 1;
    return 0;
}

int erg_tariff_load_hours(struct erg_tariff *tariff, const char *path, const char *column,
                          struct erg_error *err)
{
    struct erg_csv *csv;
    size_t columns[2];
    long next = 0;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    *tariff = (struct erg_tariff){.period_s = INFINITY};
    int result = erg_csv_require(csv, "utc_hour", &columns[0], err) ||
                 erg_csv_require(csv, column, &columns[1], err);
    if (result == 0 && erg_csv_rows(csv) == 0)
        result = erg_fail(err, ERG_FAILED, "%s: expected at least one row below the header", path);
    for (size_t row = 0; row < erg_csv_rows(csv) && result == 0; row++)
        result = read_hour(tariff, csv, row, columns, &next, err);
    if (result == 0 && (isinf(tariff->period_s) || next < DAY_HOURS))
        add_rate(tariff, (double)next * HOUR_S, true, (double)NAN);
    if (result != 0)
        erg_tariff_release(tariff);
    erg_csv_free(csv);
    return result ? -1 : 0;
}

void erg_tariff_release(struct erg_tariff *tariff)
{
    free(tariff->items);
    *tariff = (struct erg_tariff){0};
}

const struct erg_rate *erg_tariff_at(const struct erg_tariff *tariff, double now_s, double *until_s)
{
    double begin_s =
        isinf(tariff->period_s) ? 0 : floor(now_s / tariff->period_s) * tariff->period_s;
    if (begin_s + tariff->period_s <= now_s) /* the quotient was rounded down */
        begin_s += tariff->period_s;
    size_t low = 0, high = tariff->count; /* items[low] has begun, items[high] has not */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (begin_s + tariff->items[middle].at_s <= now_s)
            low = middle;
        else
            high = middle;
    }
    *until_s = begin_s + (high < tariff->count ? tariff->items[high].at_s : tariff->period_s);
    return &tariff->items[low];
}

double erg_tariff_relative(const struct erg_tariff *tariff, double now_s)
{
    double seconds = 0, usd = 0, g_co2 = 0, until_s;
    for (size_t i = 0; i < tariff->count; i++) {
        const struct erg_rate *rate = &tariff->items[i];
        double end_s = i + 1 < tariff->count ? rate[1].at_s : tariff->period_s;
        double held_s = isinf(end_s) ? 0 : end_s - rate->at_s;
        if (tariff->count == 1)
            held_s = 1;
        seconds += held_s;
        usd += held_s * rate->usd_per_kwh;
        g_co2 += held_s * rate->g_co2_per_kwh;
    }
    const struct erg_rate *now = erg_tariff_at(tariff, now_s, &until_s);
    double sum = (usd > 0 ? now->usd_per_kwh * seconds / usd : 0) +
                 (g_co2 > 0 ? now->g_co2_per_kwh * seconds / g_co2 : 0);
    int kinds = (usd > 0) + (g_co2 > 0);
    return kinds > 0 ? fmax(0, sum / kinds) : 1;
}
