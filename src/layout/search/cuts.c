#include "layout/search/cuts.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What counts as no difference, relative to the values of the cuts. */
static const double tie = 1e-9;

enum { MOST_PIVOTS = 2000 }; /* before rounding errors are left behind by beginning again */

enum { VALUE = -1 }; /* the variable that is minimised; others: numbers, then the cuts' slacks */

/*
 * Basic variables as functions of the others: values[r] + sum over columns of
 * rows[r][c] (x_c - its value). Row 0 is the value's. A cut's slack is how far it is below that.
 */
struct erg_cuts_tableau {
    size_t rows, room; /* rows 0: none yet */
    size_t pivots;     /* since it was begun */
    double *entries;   /* [room][width] */
    double *values;
    long *basic;
    long *columns;
    double *column_values;
    /* of the box */
    const long *least, *most;
    long sum;
    double *mixed; /* slopes of a mean of cuts */
    size_t *order;
};

void erg_cuts_init(struct erg_cuts *cuts, size_t width)
{
    struct erg_cuts_tableau *tableau = erg_xcalloc(1, sizeof *tableau);
    *cuts = (struct erg_cuts){.width = width, .tableau = tableau};
    tableau->room = 2 * width + 8;
    tableau->entries = erg_xcalloc(tableau->room * width, sizeof(double));
    tableau->values = erg_xcalloc(tableau->room, sizeof(double));
    tableau->basic = erg_xcalloc(tableau->room, sizeof(long));
    tableau->columns = erg_xcalloc(width, sizeof(long));
    tableau->column_values = erg_xcalloc(width, sizeof(double));
    tableau->mixed = erg_xcalloc(width, sizeof(double));
    tableau->order = erg_xcalloc(width, sizeof(size_t));
}

void erg_cuts_release(struct erg_cuts *cuts)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    free(cuts->constants);
    free(cuts->slopes);
    free(tableau->entries);
    free(tableau->values);
    free(tableau->basic);
    free(tableau->columns);
    free(tableau->column_values);
    free(tableau->mixed);
    free(tableau->order);
    free(tableau);
}

void erg_cuts_clear(struct erg_cuts *cuts)
{
    cuts->count = 0;
    cuts->tableau->rows = 0;
}

double *erg_cuts_add(struct erg_cuts *cuts, double constant)
{
    if (cuts->count == cuts->room) {
        cuts->room = cuts->room ? 2 * cuts->room : 16;
        cuts->constants = erg_xrealloc(cuts->constants, cuts->room, sizeof(double));
        cuts->slopes = erg_xrealloc(cuts->slopes, cuts->room * cuts->width, sizeof(double));
    }
    cuts->constants[cuts->count] = constant;
    return &cuts->slopes[cuts->count++ * cuts->width];
}

/* ---- one linear function ---- */

/* Where it is least: numbers by their slopes, all at their most before one that is between. */
static void sort_by_slope(size_t *order, const double *slopes, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        size_t at = i;
        for (; at > 0 && slopes[order[at - 1]] > slopes[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Fills x and returns the number that is between its bounds, the last that got any. */
static size_t fill_least(double *x, size_t *order, const double *slopes,
                         const struct erg_cuts *cuts, long sum)
{
    const struct erg_cuts_tableau *tableau = cuts->tableau;
    size_t between = 0;
    long left = sum;
    for (size_t i = 0; i < cuts->width; i++)
        left -= tableau->least[i];
    sort_by_slope(order, slopes, cuts->width);
    between = order[0];
    for (size_t i = 0; i < cuts->width; i++) {
        size_t at = order[i];
        long room = tableau->most[at] - tableau->least[at], own = left < room ? left : room;
        x[at] = (double)(tableau->least[at] + own);
        left -= own;
        if (own > 0)
            between = at;
    }
    return between;
}

static double value_at(const struct erg_cuts *cuts, size_t cut, const double *x)
{
    const double *slopes = &cuts->slopes[cut * cuts->width];
    double sum = cuts->constants[cut];
    for (size_t i = 0; i < cuts->width; i++)
        sum += slopes[i] * x[i];
    return sum;
}

/* The cut that is the largest at x. */
static size_t largest(struct erg_cuts *cuts, const double *x, double *value)
{
    size_t best = 0;
    *value = -INFINITY;
    for (size_t k = 0; k < cuts->count; k++) {
        double own = value_at(cuts, k, x);
        if (own > *value) {
            *value = own;
            best = k;
        }
    }
    cuts->work += cuts->count * cuts->width;
    return best;
}

/* ---- the tableau ---- */

static double *row_of(const struct erg_cuts *cuts, size_t row)
{
    return &cuts->tableau->entries[row * cuts->width];
}

static double low_of(const struct erg_cuts *cuts, long variable)
{
    return variable < (long)cuts->width ? (double)cuts->tableau->least[variable] : 0;
}

static double high_of(const struct erg_cuts *cuts, long variable)
{
    return variable < (long)cuts->width ? (double)cuts->tableau->most[variable] : INFINITY;
}

/* Begins with one cut, which is least at x. */
static void begin(struct erg_cuts *cuts, size_t cut, size_t between, const double *x)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    const double *slopes = &cuts->slopes[cut * cuts->width];
    double *value = row_of(cuts, 0), *number = row_of(cuts, 1);
    size_t column = 0;
    tableau->rows = 2;
    tableau->pivots = 0;
    tableau->basic[0] = VALUE;
    tableau->basic[1] = (long)between;
    tableau->values[0] = value_at(cuts, cut, x);
    tableau->values[1] = x[between];
    for (size_t i = 0; i < cuts->width; i++) {
        if (i == between)
            continue;
        tableau->columns[column] = (long)i;
        tableau->column_values[column] = x[i];
        number[column] = -1;
        value[column++] = slopes[i] - slopes[between];
    }
    tableau->columns[column] = (long)(cuts->width + cut);
    tableau->column_values[column] = 0;
    number[column] = 0;
    value[column] = 1;
}

/* Goes on in another box: numbers that are at a bound are at that from where the value grows. */
static void go_on(struct erg_cuts *cuts)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    for (size_t c = 0; c < cuts->width; c++) {
        if (tableau->columns[c] >= (long)cuts->width)
            continue;
        bool is_low = row_of(cuts, 0)[c] >= 0;
        double value = (is_low ? low_of : high_of)(cuts, tableau->columns[c]);
        double step = value - tableau->column_values[c];
        if (step == 0)
            continue;
        tableau->column_values[c] = value;
        for (size_t r = 0; r < tableau->rows; r++)
            tableau->values[r] += row_of(cuts, r)[c] * step;
    }
    cuts->work += tableau->rows * cuts->width;
}

/* Makes room where rows of cuts are that do not bind. */
static void drop_slack(struct erg_cuts *cuts)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    size_t kept = 1;
    for (size_t r = 1; r < tableau->rows; r++) {
        if (tableau->basic[r] >= (long)cuts->width)
            continue;
        tableau->basic[kept] = tableau->basic[r];
        tableau->values[kept] = tableau->values[r];
        memmove(row_of(cuts, kept++), row_of(cuts, r), cuts->width * sizeof(double));
    }
    tableau->rows = kept;
}

/* One more cut, of this value at x. */
static void add_row(struct erg_cuts *cuts, size_t cut, double value)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    const double *slopes = &cuts->slopes[cut * cuts->width];
    if (tableau->rows == tableau->room)
        drop_slack(cuts);
    double *row = row_of(cuts, tableau->rows);
    memcpy(row, row_of(cuts, 0), cuts->width * sizeof *row);
    for (size_t c = 0; c < cuts->width; c++)
        if (tableau->columns[c] < (long)cuts->width)
            row[c] -= slopes[tableau->columns[c]];
    for (size_t r = 1; r < tableau->rows; r++) {
        if (tableau->basic[r] >= (long)cuts->width)
            continue;
        const double *other = row_of(cuts, r);
        double slope = slopes[tableau->basic[r]];
        for (size_t c = 0; c < cuts->width; c++)
            row[c] -= slope * other[c];
    }
    tableau->values[tableau->rows] = tableau->values[0] - value;
    tableau->basic[tableau->rows++] = (long)(cuts->width + cut);
    cuts->work += tableau->rows * cuts->width;
}

/* The row whose variable is furthest beyond its bounds, by how much it would have to grow; 0: none
 * is. */
static size_t worst_row(const struct erg_cuts *cuts, double *growth)
{
    const struct erg_cuts_tableau *tableau = cuts->tableau;
    double scale = tie * (1 + fabs(tableau->values[0])), worst = 0;
    size_t row = 0;
    for (size_t r = 1; r < tableau->rows; r++) {
        bool is_slack = tableau->basic[r] >= (long)cuts->width;
        double value = tableau->values[r], low = low_of(cuts, tableau->basic[r]);
        double own = fmax(low - value, value - high_of(cuts, tableau->basic[r]));
        own /= is_slack ? scale : tie;
        if (own > 1 && own > worst) {
            worst = own;
            row = r;
            *growth = value < low ? low - value : high_of(cuts, tableau->basic[r]) - value;
        }
    }
    return row;
}

/* The column that may take the place of a row's variable; the width: none. */
static size_t entering(const struct erg_cuts *cuts, size_t row, double growth)
{
    const struct erg_cuts_tableau *tableau = cuts->tableau;
    const double *own = row_of(cuts, row), *value = row_of(cuts, 0);
    double best = INFINITY;
    size_t column = cuts->width;
    for (size_t c = 0; c < cuts->width; c++) {
        long variable = tableau->columns[c];
        double low = low_of(cuts, variable), high = high_of(cuts, variable);
        double entry = growth > 0 ? own[c] : -own[c];
        bool is_low = tableau->column_values[c] <= low;
        if (low >= high || (is_low ? entry < tie : entry > -tie))
            continue;
        double ratio = fabs(value[c] / entry);
        if (ratio < best * (1 - tie) ||
            (ratio <= best * (1 + tie) && fabs(entry) > fabs(own[column]))) {
            best = ratio;
            column = c;
        }
    }
    return column;
}

static void pivot(struct erg_cuts *cuts, size_t row, size_t column, double growth)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    double *own = row_of(cuts, row), entry = own[column], step = growth / entry;
    long leaving = tableau->basic[row];
    double left_at = growth > 0 ? low_of(cuts, leaving) : high_of(cuts, leaving);
    double entered_at = tableau->column_values[column] + step;
    for (size_t c = 0; c < cuts->width; c++)
        own[c] /= -entry;
    own[column] = 1 / entry;
    for (size_t r = 0; r < tableau->rows; r++) {
        double *other = row_of(cuts, r), share = other[column];
        if (r == row || share == 0)
            continue;
        tableau->values[r] += share * step;
        other[column] = 0;
        for (size_t c = 0; c < cuts->width; c++)
            other[c] += share * own[c];
    }
    tableau->basic[row] = tableau->columns[column];
    tableau->values[row] = entered_at;
    tableau->columns[column] = leaving;
    tableau->column_values[column] = left_at;
    tableau->pivots++;
    cuts->work += tableau->rows * cuts->width;
}

/* Pivots until no variable is beyond its bounds. */
static void reoptimise(struct erg_cuts *cuts, double limit)
{
    for (size_t left = 20 * cuts->width + 100; left > 0; left--) {
        double growth = 0;
        size_t row = worst_row(cuts, &growth);
        if (row == 0 || cuts->tableau->values[0] > limit)
            return;
        size_t column = entering(cuts, row, growth);
        if (column == cuts->width)
            return; /* by a rounding error: there is a point */
        pivot(cuts, row, column, growth);
    }
}

static void fill_point(const struct erg_cuts *cuts, double *x)
{
    const struct erg_cuts_tableau *tableau = cuts->tableau;
    for (size_t c = 0; c < cuts->width; c++)
        if (tableau->columns[c] < (long)cuts->width)
            x[tableau->columns[c]] = tableau->column_values[c];
    for (size_t r = 1; r < tableau->rows; r++)
        if (tableau->basic[r] < (long)cuts->width)
            x[tableau->basic[r]] = tableau->values[r];
}

/* The least value in the box of the mean of cuts that the multipliers say. */
static double value_of_mean(struct erg_cuts *cuts, long sum)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    const double *value = row_of(cuts, 0);
    double total = 0, constant = 0, least = 0;
    for (size_t c = 0; c < cuts->width; c++)
        if (tableau->columns[c] >= (long)cuts->width)
            total += fmax(value[c], 0);
    memset(tableau->mixed, 0, cuts->width * sizeof *tableau->mixed);
    for (size_t c = 0; c < cuts->width; c++) {
        if (tableau->columns[c] < (long)cuts->width || value[c] <= 0)
            continue;
        size_t cut = (size_t)tableau->columns[c] - cuts->width;
        const double *slopes = &cuts->slopes[cut * cuts->width];
        double weight = value[c] / total;
        constant += weight * cuts->constants[cut];
        for (size_t i = 0; i < cuts->width; i++)
            tableau->mixed[i] += weight * slopes[i];
        cuts->work += cuts->width;
    }
    sort_by_slope(tableau->order, tableau->mixed, cuts->width);
    for (size_t i = 0; i < cuts->width; i++) {
        least += tableau->mixed[i] * (double)tableau->least[i];
        sum -= tableau->least[i];
    }
    for (size_t i = 0; i < cuts->width && sum > 0; i++) {
        size_t at = tableau->order[i];
        long room = tableau->most[at] - tableau->least[at], own = sum < room ? sum : room;
        least += tableau->mixed[at] * (double)own;
        sum -= own;
    }
    return constant + least;
}

double erg_cuts_bound(struct erg_cuts *cuts, const long *least, const long *most, long sum,
                      double limit, double *point)
{
    struct erg_cuts_tableau *tableau = cuts->tableau;
    long low = 0, high = 0;
    double value;
    tableau->least = least;
    tableau->most = most;
    for (size_t i = 0; i < cuts->width; i++) {
        if (least[i] > most[i])
            return INFINITY;
        low += least[i];
        high += most[i];
    }
    if (low > sum || high < sum)
        return INFINITY;
    if (tableau->rows == 0 || tableau->sum != sum || tableau->pivots > MOST_PIVOTS) {
        tableau->sum = sum;
        size_t first = cuts->count - 1;
        size_t between =
            fill_least(point, tableau->order, &cuts->slopes[first * cuts->width], cuts, sum);
        begin(cuts, first, between, point);
    } else {
        go_on(cuts);
        reoptimise(cuts, limit);
        fill_point(cuts, point);
    }
    for (size_t left = 10 * cuts->width + 100; left > 0; left--) {
        size_t cut = largest(cuts, point, &value);
        if (value <= tableau->values[0] + tie * fabs(value) || tableau->values[0] > limit)
            break;
        add_row(cuts, cut, value);
        reoptimise(cuts, limit);
        fill_point(cuts, point);
    }
    return value_of_mean(cuts, sum);
}
