/* Fields of decimal digits (base/digits.h): unlike sscanf(), without signs and spaces. */
#include "base/digits.h"

#include <assert.h>

bool erg_take_digits(const char **text, int least, int most, int *value)
{
    assert(least >= 1 && most >= least && most <= 9);
    const char *at = *text;
    int count = 0, sum = 0;
    for (; count < most && at[count] >= '0' && at[count] <= '9'; count++)
        sum = 10 * sum + (at[count] - '0');
    if (count < least)
        return false;
    *text = at + count;
    *value = sum;
    return true;
}

bool erg_take_char(const char **text, char expected)
{
    if (!expected || **text != expected)
        return false;
    ++*text;
    return true;
}

bool erg_take_date_hour(const char **text, struct erg_date_hour *date)
{
    return erg_take_digits(text, 1, 4, &date->year) && erg_take_char(text, '-') &&
           erg_take_digits(text, 1, 2, &date->month) && erg_take_char(text, '-') &&
           erg_take_digits(text, 1, 2, &date->day) &&
           (erg_take_char(text, 'T') || erg_take_char(text, ' ')) &&
           erg_take_digits(text, 1, 2, &date->hour);
}
