/* The times of logs: dates with and without zones, and the clock of the Pacific coast. */
#define _DEFAULT_SOURCE /* timegm */
#include "cluster/traces/log_internal.h"

#include "base/digits.h"

#include <ctype.h>
#include <stdlib.h>
#include <time.h>

#define DAY_S 86400.0
#define HOUR_S 3600.0

/* Days from 1970-01-01 to a date of the Gregorian calendar; false for an invalid date. */
static bool days_of(int year, int month, int day, long *days)
{
    struct tm date = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    *days = (long)(timegm(&date) / 86400);
    return year >= 1 && date.tm_mon == month - 1 && date.tm_mday == day;
}

/* "", "Z", "+08", "+0800" or "+08:00": whether it is a zone, and its offset to the east. */
static bool parse_zone(const char *text, bool *has_zone, double *east_s)
{
    int hours, minutes = 0;
    char sign = *text;
    *has_zone = *text != '\0';
    *east_s = 0;
    if (!*text || ((*text == 'Z' || *text == 'z') && !text[1]))
        return true;
    text++;
    if ((sign != '+' && sign != '-') || !erg_take_digits(&text, 2, 2, &hours))
        return false;
    text += *text == ':';
    if (*text && (!erg_take_digits(&text, 2, 2, &minutes) || *text))
        return false;
    *east_s = (sign == '-' ? -1 : 1) * (HOUR_S * hours + 60 * minutes);
    return hours <= 14 && minutes < 60;
}

struct clock_time {
    int year;
    double shown_s; /* as if the clock were that of Greenwich */
    bool has_zone;
    double east_s;
};

static bool parse_time(const char *text, struct clock_time *time)
{
    struct erg_date_hour at;
    int minute, second;
    long days;
    char *rest;
    if (!erg_take_date_hour(&text, &at) || !erg_take_char(&text, ':') ||
        !erg_take_digits(&text, 1, 2, &minute) || !erg_take_char(&text, ':') ||
        !erg_take_digits(&text, 1, 2, &second) || !days_of(at.year, at.month, at.day, &days) ||
        at.hour > 23 || minute > 59 || second > 60)
        return false;
    double part_s = 0;
    if (*text == '.') {
        part_s = isdigit((unsigned char)text[1]) ? strtod(text, &rest) : 2;
        if (part_s >= 1)
            return false;
        text = rest;
    }
    text += *text == ' ' && (text[1] == '+' || text[1] == '-');
    time->year = at.year;
    time->shown_s = DAY_S * (double)days + HOUR_S * at.hour + 60 * minute + second + part_s;
    return parse_zone(text, &time->has_zone, &time->east_s);
}

bool erg_log_time(const char *text, double *seconds)
{
    struct clock_time time;
    if (!parse_time(text, &time))
        return false;
    *seconds = time.shown_s - time.east_s;
    return true;
}

/* Two o'clock of a Sunday of a month, the first, second, ... */
static double change_s(int year, int month, int sunday)
{
    long first;
    days_of(year, month, 1, &first);
    long weekday = ((first + 4) % 7 + 7) % 7; /* 0: Sunday */
    return DAY_S * (double)(first + (7 - weekday) % 7 + 7L * (sunday - 1)) + 2 * HOUR_S;
}

bool erg_log_time_pacific(const char *text, double least_s, double *seconds)
{
    struct clock_time time;
    if (!parse_time(text, &time))
        return false;
    /* The rule since 2007. */
    double summer_s = change_s(time.year, 3, 2), winter_s = change_s(time.year, 11, 1);
    bool is_summer = time.shown_s >= summer_s && time.shown_s < winter_s;
    bool is_twofold = is_summer && time.shown_s >= winter_s - HOUR_S;
    *seconds = time.shown_s - (time.has_zone ? time.east_s : (is_summer ? -7 : -8) * HOUR_S);
    if (!time.has_zone && is_twofold && *seconds < least_s)
        *seconds += HOUR_S;
    return true;
}
