/* Values of options: their text, their range, and the sentence about a wrong one. */
#include "base/option_value.h"

#include "base/text.h"

#include <math.h>

int erg_option_check_range(const char *option, const char *text, double value, double least,
                           double most, struct erg_error *err)
{
    if (least == most || (value >= least && value <= most))
        return 0;
    if (most >= 1e15 && value < least)
        return erg_fail(err, ERG_USAGE, "--%s got \"%.100s\", expected at least %.10g", option,
                        text, least);
    return erg_fail(err, ERG_USAGE, "--%s got \"%.100s\", expected a value between %.16g and %.16g",
                    option, text, least, most);
}

int erg_option_long(long *number, const char *option, const char *text, double least, double most,
                    struct erg_error *err)
{
    double beyond;
    if (erg_parse_long(text, number))
        return erg_option_check_range(option, text, (double)*number, least, most, err);
    if (erg_parse_double(text, &beyond) && fabs(beyond) >= 0x1p63 &&
        erg_option_check_range(option, text, beyond, least, most, err) != 0)
        return -1;
    return erg_fail(err, ERG_USAGE, "--%s got \"%.100s\", expected %s", option, text,
                    erg_whole_number(text));
}

int erg_option_double(double *number, const char *option, const char *text, double least,
                      double most, struct erg_error *err)
{
    if (!erg_parse_double(text, number))
        return erg_fail(err, ERG_USAGE, "--%s got \"%.100s\", expected a number", option, text);
    return erg_option_check_range(option, text, *number, least, most, err);
}

int erg_option_check_points(int given, struct erg_error *err)
{
    return given <= 1 ? 0
                      : erg_fail(err, ERG_USAGE,
                                 "--point, --deadline and --energy-budget exclude each other: each "
                                 "chooses one point");
}
