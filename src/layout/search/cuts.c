#include "layout/search/cuts.h"

#include "base/memory.h"

#include <coin/Clp_C_Interface.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What counts as no difference, relative to the values of the cuts. */
static const double tie = 1e-9;

/* Clp's words: statuses of programs and of rows. */
enum { SOLVED = 0, BASIC = 1 };

/* Cuts that become rows at once. */
enum { MOST_ADDED = 4 };

/*
 * The least v, in units of `scale`, with v >= every cut that is a row. Columns: the numbers, then
 * v; rows: the sum, then cuts.
 */
struct erg_cuts_program {
    Clp_Simplex *model; /* NULL: none yet */
    long sum;
    double scale;
    size_t rows, room;                    /* of cuts */
    size_t *cuts;                         /* [rows] which they are */
    int *dropped;                         /* [room] */
    int *columns;                         /* [width + 1] 0, 1, … */
    double *low, *high, *entries, *mixed; /* [width + 1] */
    size_t *order;                        /* [width] */
};

void erg_cuts_init(struct erg_cuts *cuts, size_t width)
{
    struct erg_cuts_program *program = erg_xcalloc(1, sizeof *program);
    *cuts = (struct erg_cuts){.width = width, .program = program};
    program->room = 2 * width + 8;
    program->cuts = erg_xcalloc(program->room, sizeof *program->cuts);
    program->dropped = erg_xcalloc(program->room, sizeof *program->dropped);
    program->columns = erg_xcalloc(width + 1, sizeof *program->columns);
    program->low = erg_xcalloc(width + 1, sizeof *program->low);
    program->high = erg_xcalloc(width + 1, sizeof *program->high);
    program->entries = erg_xcalloc(width + 1, sizeof *program->entries);
    program->mixed = erg_xcalloc(width + 1, sizeof *program->mixed);
    program->order = erg_xcalloc(width, sizeof *program->order);
    for (size_t i = 0; i <= width; i++)
        program->columns[i] = (int)i;
}

static void forget_model(struct erg_cuts_program *program)
{
    if (program->model)
        Clp_deleteModel(program->model);
    program->model = NULL;
}

void erg_cuts_release(struct erg_cuts *cuts)
{
    struct erg_cuts_program *program = cuts->program;
    forget_model(program);
    free(cuts->constants);
    free(cuts->slopes);
    free(program->cuts);
    free(program->dropped);
    free(program->columns);
    free(program->low);
    free(program->high);
    free(program->entries);
    free(program->mixed);
    free(program->order);
    free(program);
}

void erg_cuts_clear(struct erg_cuts *cuts)
{
    cuts->count = 0;
    forget_model(cuts->program);
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

static double value_at(const struct erg_cuts *cuts, size_t cut, const double *x)
{
    const double *slopes = &cuts->slopes[cut * cuts->width];
    double sum = cuts->constants[cut];
    for (size_t i = 0; i < cuts->width; i++)
        sum += slopes[i] * x[i];
    return sum;
}

/* ---- rows ---- */

static void drop_slack(struct erg_cuts_program *program)
{
    size_t kept = 0;
    int count = 0;
    for (size_t r = 0; r < program->rows; r++) {
        if (Clp_getRowStatus(program->model, (int)r + 1) == BASIC)
            program->dropped[count++] = (int)r + 1;
        else
            program->cuts[kept++] = program->cuts[r];
    }
    Clp_deleteRows(program->model, count, program->dropped);
    program->rows = kept;
}

static void add_row(struct erg_cuts *cuts, size_t cut)
{
    struct erg_cuts_program *program = cuts->program;
    const int starts[] = {0, (int)cuts->width + 1};
    const double low = cuts->constants[cut] / program->scale, high = DBL_MAX;
    if (program->rows == program->room)
        drop_slack(program);
    for (size_t i = 0; i < cuts->width; i++)
        program->entries[i] = -cuts->slopes[cut * cuts->width + i] / program->scale;
    program->entries[cuts->width] = 1;
    Clp_addRows(program->model, 1, &low, &high, starts, program->columns, program->entries);
    program->cuts[program->rows++] = cut;
}

/* Begins with the cut that was made last, and those that were rows before. */
static void begin(struct erg_cuts *cuts, long sum)
{
    struct erg_cuts_program *program = cuts->program;
    const size_t width = cuts->width, first = cuts->count - 1, before = program->rows;
    const double *slopes = &cuts->slopes[first * width], total = (double)sum;
    const int starts[] = {0, (int)width};
    double steepest = 0;
    forget_model(program);
    for (size_t i = 0; i < width; i++)
        steepest = fmax(steepest, fabs(slopes[i]));
    program->scale = fabs(cuts->constants[first]) + steepest * total;
    program->scale = program->scale > 0 ? program->scale : 1;
    program->sum = sum;
    program->model = Clp_newModel();
    Clp_setLogLevel(program->model, 0);
    Clp_scaling(program->model, 0);
    Clp_setPrimalTolerance(program->model, tie);
    Clp_setDualTolerance(program->model, tie);
    Clp_resize(program->model, 0, (int)width + 1);
    for (size_t i = 0; i <= width; i++)
        program->entries[i] = i == width;
    Clp_chgObjCoefficients(program->model, program->entries);
    for (size_t i = 0; i < width; i++)
        program->entries[i] = 1;
    Clp_addRows(program->model, 1, &total, &total, starts, program->columns, program->entries);
    program->rows = 0;
    for (size_t r = 0; r < before; r++)
        if (program->cuts[r] < first && program->rows + 1 < program->room)
            add_row(cuts, program->cuts[r]);
    add_row(cuts, first);
}

static void solve(struct erg_cuts *cuts)
{
    Clp_dual(cuts->program->model, 0);
    cuts->programs++;
}

/* Whether the program that was solved last was of this box. */
static bool set_box(struct erg_cuts *cuts, const long *least, const long *most)
{
    struct erg_cuts_program *program = cuts->program;
    bool same = true;
    for (size_t i = 0; i < cuts->width; i++) {
        same &= program->low[i] == (double)least[i] && program->high[i] == (double)most[i];
        program->low[i] = (double)least[i];
        program->high[i] = (double)most[i];
    }
    program->low[cuts->width] = -DBL_MAX;
    program->high[cuts->width] = DBL_MAX;
    return same;
}

/* Adds rows of the cuts that are furthest above v at the point. False: none is, but for rows. */
static bool add_rows(struct erg_cuts *cuts, const double *point)
{
    struct erg_cuts_program *program = cuts->program;
    const double v = Clp_primalColumnSolution(program->model)[cuts->width] * program->scale;
    double values[MOST_ADDED];
    size_t furthest[MOST_ADDED], count = 0;
    bool any = false;
    for (size_t k = 0; k < cuts->count; k++) {
        double own = value_at(cuts, k, point);
        if (own <= v + tie * fabs(v) || (count == MOST_ADDED && own <= values[count - 1]))
            continue;
        size_t place = count < MOST_ADDED ? count++ : count - 1;
        for (; place > 0 && values[place - 1] < own; place--) {
            values[place] = values[place - 1];
            furthest[place] = furthest[place - 1];
        }
        values[place] = own;
        furthest[place] = k;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_row = false; /* above it by a rounding error */
        for (size_t r = 0; r < program->rows; r++)
            is_row |= program->cuts[r] == furthest[i];
        if (is_row)
            continue;
        add_row(cuts, furthest[i]);
        any = true;
    }
    return any;
}

/* ---- the bound ---- */

static void sort_by_slope(size_t *order, const double *slopes, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        size_t at = i;
        for (; at > 0 && slopes[order[at - 1]] > slopes[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The least value in the box of the mean of cuts that the multipliers say. */
static double value_of_mean(const struct erg_cuts *cuts, const long *least, const long *most,
                            long sum)
{
    struct erg_cuts_program *program = cuts->program;
    const double *multipliers = Clp_dualRowSolution(program->model) + 1;
    double total = 0, value = 0, *mixed = program->mixed;
    for (size_t r = 0; r < program->rows; r++)
        total += fmax(multipliers[r], 0);
    if (!(total > 0 && total < INFINITY))
        return -INFINITY;
    memset(mixed, 0, cuts->width * sizeof *mixed);
    for (size_t r = 0; r < program->rows; r++) {
        const double weight = fmax(multipliers[r], 0) / total;
        const double *slopes = &cuts->slopes[program->cuts[r] * cuts->width];
        value += weight * cuts->constants[program->cuts[r]];
        for (size_t i = 0; weight > 0 && i < cuts->width; i++)
            mixed[i] += weight * slopes[i];
    }
    sort_by_slope(program->order, mixed, cuts->width);
    for (size_t i = 0; i < cuts->width; i++) {
        value += mixed[i] * (double)least[i];
        sum -= least[i];
    }
    for (size_t i = 0; i < cuts->width && sum > 0; i++) {
        const size_t at = program->order[i];
        const long room = most[at] - least[at], own = sum < room ? sum : room;
        value += mixed[at] * (double)own;
        sum -= own;
    }
    return value;
}

/* The point of the program that was solved last, in the box whatever Clp says. */
static void fill_point(const struct erg_cuts *cuts, const long *least, const long *most,
                       double *point)
{
    const double *x = Clp_primalColumnSolution(cuts->program->model);
    for (size_t i = 0; i < cuts->width; i++)
        point[i] = fmin(fmax(x[i], (double)least[i]), (double)most[i]);
}

double erg_cuts_bound(struct erg_cuts *cuts, const long *least, const long *most, long sum,
                      double limit, double *point)
{
    struct erg_cuts_program *program = cuts->program;
    long low = 0, high = 0;
    double bound = -INFINITY;
    for (size_t i = 0; i < cuts->width; i++) {
        if (least[i] > most[i])
            return INFINITY;
        low += least[i];
        high += most[i];
    }
    if (low > sum || high < sum)
        return INFINITY;
    const bool goes_on = program->model && program->sum == sum;
    if (!goes_on)
        begin(cuts, sum);
    Clp_setDualObjectiveLimit(program->model,
                              fmin((limit + tie * fabs(limit)) / program->scale, DBL_MAX));
    if (!set_box(cuts, least, most) || !goes_on || Clp_status(program->model) != SOLVED) {
        Clp_chgColumnLower(program->model, program->low);
        Clp_chgColumnUpper(program->model, program->high);
        solve(cuts);
    }
    for (size_t left = 10 * cuts->width + 100; left > 0; left--) {
        fill_point(cuts, least, most, point);
        bound = fmax(bound, value_of_mean(cuts, least, most, sum));
        if (bound > limit || Clp_status(program->model) != SOLVED || !add_rows(cuts, point))
            break;
        solve(cuts);
    }
    return bound;
}
