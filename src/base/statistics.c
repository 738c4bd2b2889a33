/* Statistics: the median, spreads, and the confidence interval of a mean (Student's t). */
#include "base/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

int erg_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int erg_compare_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

double erg_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, erg_compare_doubles);
    return count ? values[count / 2] : 0;
}

static const double pi = 3.14159265358979323846;

/* P(|T| <= t). */
static double student_within(double t, size_t degrees)
{
    double angle = atan(t / sqrt((double)degrees));
    double sine = sin(angle), squared_cosine = cos(angle) * cos(angle);
    bool odd = degrees % 2 == 1;
    /* Each term from the one before it: cos, 2/3 cos^3, …; or 1, 1/2 cos^2, …. */
    double term = odd ? cos(angle) : 1, sum = 0;
    for (size_t k = odd ? 3 : 2; k <= degrees; k += 2) {
        sum += term;
        term *= squared_cosine * (double)(k - 1) / (double)k;
    }
    return odd ? 2 / pi * (angle + sine * sum) : sine * sum;
}

double erg_student_critical(size_t degrees, double confidence)
{
    double low = 0, high = 1;
    assert(degrees > 0 && confidence > 0 && confidence < 1);
    while (student_within(high, degrees) < confidence)
        high *= 2;
    for (int i = 0; i < 100 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (student_within(middle, degrees) < confidence)
            low = middle;
        else
            high = middle;
    }
    return high;
}

struct erg_interval erg_interval_of_mean(const double *values, size_t count, double confidence)
{
    struct erg_interval interval = {.mean = NAN, .half_width = NAN};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i])) {
            sum += values[i];
            interval.count++;
        }
    if (interval.count == 0)
        return interval;
    double numbers = (double)interval.count;
    interval.mean = sum / numbers;
    if (interval.count < 2)
        return interval;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            squares += (values[i] - interval.mean) * (values[i] - interval.mean);
    interval.half_width = erg_student_critical(interval.count - 1, confidence) *
                          sqrt(squares / (numbers - 1) / numbers);
    return interval;
}

/* Welford's update, which loses no digits where the spread is small compared with the mean. */
void erg_spread_add(struct erg_spread *spread, double value)
{
    if (isnan(value))
        return;
    double before = value - spread->mean;
    spread->count++;
    spread->mean += before / (double)spread->count;
    spread->squares += before * (value - spread->mean);
    if (spread->count == 1 || value < spread->least)
        spread->least = value;
    if (spread->count == 1 || value > spread->most)
        spread->most = value;
}

double erg_spread_mean(const struct erg_spread *spread)
{
    return spread->count ? spread->mean : NAN;
}

double erg_spread_sd(const struct erg_spread *spread)
{
    return spread->count < 2 ? NAN : sqrt(spread->squares / (double)(spread->count - 1));
}
