/* Digits: fields of a fixed form such as "2026-11-27" and "11:30:00". */
#ifndef ERG_BASE_DIGITS_H
#define ERG_BASE_DIGITS_H

#include <stdbool.h>

/*
 * Reads `least` to `most` decimal digits, at most 9, and puts *text behind them. False if there are
 * fewer; a sign or a space is no digit.
 */
bool erg_take_digits(const char **text, int least, int most, int *value);

/* Puts *text behind this character; false if it is another one. */
bool erg_take_char(const char **text, char expected);

/* Reads a date and an hour, "2026-11-27T18" or with a space for the T; checks the form alone. */
struct erg_date_hour {
    int year, month, day, hour;
};
bool erg_take_date_hour(const char **text, struct erg_date_hour *date);

#endif
