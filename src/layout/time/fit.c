/* Fits engines' constants to measured iterations, and measures how well they predict others. */
#include "layout/time/fit.h"

#include "base/least_squares.h"
#include "base/statistics.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct erg_engine erg_fit_row_engine(const struct erg_fit_row *row, const struct erg_engine *engine)
{
    struct erg_engine own = *engine;
    if (row->sequence_parallel != ERG_FIT_AS_ENGINE)
        own.sequence_parallel = row->sequence_parallel == ERG_FIT_PARALLEL;
    return own;
}

void erg_fit_predict(double *time_s, const struct erg_fit_row *rows, size_t count,
                     const struct erg_engine *engine, const struct erg_time_machine *machine)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_engine own = erg_fit_row_engine(&rows[i], engine);
        const struct erg_time_request request = {rows[i].model, &own, machine};
        struct erg_time time;
        erg_time_layout(&time, &request, &rows[i].layout);
        time_s[i] = time.total;
    }
}

/* ---- errors ---- */

struct rank_value {
    double value;
    size_t index;
};

/* Ranks from 0; equal values get the mean of theirs. */
static void rank(double *ranks, struct rank_value *items, size_t count)
{
    qsort(items, count, sizeof *items, erg_compare_doubles);
    for (size_t i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && !(items[j].value > items[i].value);)
            j++;
        for (size_t k = i; k < j; k++)
            ranks[items[k].index] = (double)(i + j - 1) / 2;
    }
}

/* Correlation of two lists of ranks. */
static double correlate(const double *x, const double *y, size_t count)
{
    double mean = (double)(count - 1) / 2, xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < count; i++) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

struct erg_fit_errors erg_fit_judge(const double *time_s, const struct erg_fit_row *rows,
                                    size_t count)
{
    struct erg_fit_errors errors = {0};
    struct rank_value *items = erg_xcalloc(count, sizeof *items);
    double *ranks[2];
    for (int measured = 0; measured < 2; measured++) {
        for (size_t i = 0; i < count; i++) {
            double tokens = (double)rows[i].batch * (double)rows[i].layout.sequence /
                            (double)erg_layout_gpus(&rows[i].layout);
            items[i] = (struct rank_value){tokens / (measured ? rows[i].time_s : time_s[i]), i};
        }
        ranks[measured] = erg_xcalloc(count, sizeof *ranks[measured]);
        rank(ranks[measured], items, count);
    }
    for (size_t i = 0; i < count; i++) {
        double off = fabs(time_s[i] / rows[i].time_s - 1);
        errors.mean += off / (double)count;
        errors.worst = off > errors.most ? i : errors.worst;
        errors.most = fmax(errors.most, off);
    }
    errors.spearman = correlate(ranks[0], ranks[1], count);
    free(ranks[0]);
    free(ranks[1]);
    free(items);
    return errors;
}

/* ---- fitting ---- */

/* The standard deviation of the logarithm of a measured time, as the scale of the prior. */
static const double row_sd = 0.01;
/*
 * Standard deviations of a constant's logarithm: the prior, which is wide and only keeps constants
 * without influence from diverging, and the one above which the rows do not determine the constant.
 */
static const double prior_sd = 10, untold_sd = 1;

struct engine_fit {
    const struct erg_fit_request *request;
    size_t constants;
    const struct erg_quantity *numbers[ERG_FIT_MOST_CONSTANTS];
    size_t *fold_of; /* fold of each row */
    size_t without;  /* the excluded fold; request->folds: none */
    struct erg_engine engine;
};

static void apply(struct engine_fit *fitting, const double *logs)
{
    const struct erg_engine *start = fitting->request->start;
    fitting->engine = *start;
    for (size_t k = 0; k < fitting->constants; k++) {
        const struct erg_quantity *number = fitting->numbers[k];
        erg_engine_set(&fitting->engine, number, erg_engine_get(start, number) * exp(logs[k]));
    }
}

static int residuals(void *context, const double *logs, double *out, struct erg_error *err)
{
    (void)err;
    struct engine_fit *fitting = context;
    const struct erg_fit_request *request = fitting->request;
    apply(fitting, logs);
    for (size_t i = 0; i < request->count; i++) {
        const struct erg_fit_row *row = &request->rows[i];
        out[i] = 0;
        if (fitting->fold_of[i] == fitting->without)
            continue;
        double time_s;
        erg_fit_predict(&time_s, row, 1, &fitting->engine, request->machine);
        out[i] = sqrt(row->weight) * log(time_s / row->time_s) / row_sd;
    }
    return 0;
}

/* ---- folds ---- */

/* Compares the stages and chunks of two layouts of the same degrees. */
static bool are_stages_alike(const struct erg_layout *x, const struct erg_layout *y, long layers)
{
    for (long stage = 0; stage < x->pipeline; stage++) {
        if (erg_layout_recompute(x, stage) != erg_layout_recompute(y, stage) ||
            erg_layout_offload(x, stage) != erg_layout_offload(y, stage))
            return false;
        for (long chunk = 0; chunk < x->virtual_stages; chunk++)
            if (erg_layout_chunk_layers(x, layers, stage, chunk) !=
                erg_layout_chunk_layers(y, layers, stage, chunk))
                return false;
    }
    return true;
}

static bool is_repeated(const struct erg_fit_row *a, const struct erg_fit_row *b)
{
    const struct erg_layout *x = &a->layout, *y = &b->layout;
    return a->model == b->model && a->batch == b->batch && x->tensor == y->tensor &&
           x->context == y->context && x->pipeline == y->pipeline && x->data == y->data &&
           x->virtual_stages == y->virtual_stages && x->microbatch == y->microbatch &&
           x->sequence == y->sequence && a->sequence_parallel == b->sequence_parallel &&
           are_stages_alike(x, y, a->model->layers);
}

/*
 * Rows that repeat a layout belong to the fold of its first row: otherwise the layout would predict
 * itself. With fewer layouts than folds every row is a fold of its own.
 */
static size_t *cut_folds(const struct erg_fit_request *request)
{
    size_t layouts = 0, *fold_of = erg_xcalloc(request->count, sizeof *fold_of);
    for (size_t i = 0; i < request->count; i++) {
        size_t first = 0;
        while (first < i && !is_repeated(&request->rows[first], &request->rows[i]))
            first++;
        fold_of[i] = first < i ? fold_of[first] : layouts++ % request->folds;
    }
    for (size_t i = 0; i < request->count && layouts < request->folds; i++)
        fold_of[i] = i % request->folds;
    return fold_of;
}

/* ---- checks ---- */

/* The place of a row, or its number. */
static const char *place_of(const struct erg_fit_request *request, size_t row,
                            struct erg_arena *arena)
{
    return request->path ? erg_fit_row_place(&request->rows[row], arena)
                         : erg_arena_printf(arena, "row %zu", row + 1);
}

/* Non-finite times would leave the constants unchanged, as if they fitted. */
static int check_predicted(const struct erg_fit_request *request, const struct erg_engine *engine,
                           struct erg_error *err)
{
    for (size_t i = 0; i < request->count; i++) {
        const struct erg_fit_row *row = &request->rows[i];
        double time_s;
        erg_fit_predict(&time_s, row, 1, engine, request->machine);
        if (isfinite(time_s) && time_s > 0)
            continue;
        struct erg_arena arena = {0};
        erg_fail(err, ERG_FAILED,
                 "the engine '%s' predicts %g s for %s (%ld GPUs, measured %g s); expected a time "
                 "above 0, so nothing can be fitted to it",
                 engine->name, time_s, place_of(request, i, &arena), erg_layout_gpus(&row->layout),
                 row->time_s);
        erg_arena_release(&arena);
        return -1;
    }
    return 0;
}

/* Fits all rows except those of a fold. */
static int fit_without(struct engine_fit *fitting, size_t fold, double *logs, struct erg_error *err)
{
    double sd[ERG_FIT_MOST_CONSTANTS];
    for (size_t k = 0; k < fitting->constants; k++) {
        sd[k] = prior_sd;
        logs[k] = 0;
    }
    fitting->without = fold;
    if (erg_least_squares(residuals, fitting, fitting->constants, sd, fitting->request->count, 200,
                          logs, err) != 0)
        return -1;
    apply(fitting, logs);
    return check_predicted(fitting->request, &fitting->engine, err);
}

static int find_constants(struct engine_fit *fitting, struct erg_error *err)
{
    const char *const *keys = fitting->request->keys;
    for (size_t k = 0; keys[k]; k++) {
        const struct erg_quantity *number = erg_engine_numbers;
        while (number->key && strcmp(number->key, keys[k]) != 0)
            number++;
        if (!number->key) {
            const char *names[64];
            size_t count = 0;
            for (number = erg_engine_numbers; number->key; number++)
                names[count++] = number->key;
            names[count] = NULL;
            const char *meant = erg_closest(keys[k], names);
            return erg_fail(err, ERG_USAGE, "an engine has no constant '%s'%s%s%s", keys[k],
                            meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
        }
        if (k == ERG_FIT_MOST_CONSTANTS)
            return erg_fail(err, ERG_USAGE,
                            "more than %d constants to fit; expected fewer, since more "
                            "would fit noise",
                            ERG_FIT_MOST_CONSTANTS);
        for (size_t before = 0; before < k; before++)
            if (fitting->numbers[before] == number)
                return erg_fail(err, ERG_USAGE, "the constant '%s' is listed twice", keys[k]);
        fitting->numbers[k] = number;
        fitting->constants = k + 1;
        const struct erg_engine *start = fitting->request->start;
        if (!(erg_engine_get(start, number) > 0))
            return erg_fail(err, ERG_FAILED,
                            "the engine '%s' has no '%s' above 0 to start from; give it one",
                            start->name, keys[k]);
    }
    return 0;
}

static int check(const struct erg_fit_request *request, struct engine_fit *fitting,
                 struct erg_error *err)
{
    if (find_constants(fitting, err) != 0)
        return -1;
    size_t needed = 2 * fitting->constants;
    if (request->folds < 2 || request->folds > ERG_FIT_MOST_FOLDS)
        return erg_fail(err, ERG_USAGE, "expected 2 to %d folds, got %zu", ERG_FIT_MOST_FOLDS,
                        request->folds);
    if (request->count < needed || request->count < request->folds)
        return erg_fail(err, ERG_FAILED,
                        "%s%s%zu rows are too few to fit %zu constants in %zu folds; expected at "
                        "least %zu",
                        request->path ? request->path : "", request->path ? ": " : "",
                        request->count, fitting->constants, request->folds,
                        needed > request->folds ? needed : request->folds);
    return check_predicted(request, request->start, err);
}

/* A constant outside the range of an engine's file could not be loaded. */
static int check_fitted(const struct engine_fit *fitting, const struct erg_fit *fit,
                        struct erg_error *err)
{
    for (size_t k = 0; k < fit->constants; k++) {
        const struct erg_quantity *number = fitting->numbers[k];
        double value = erg_engine_get(&fit->engine, number) / number->factor;
        if (value >= number->min && value <= number->max)
            continue;
        const size_t worst = fit->fitted.worst;
        struct erg_arena arena = {0};
        erg_fail(err, ERG_FAILED,
                 "the rows give %.4g for %s, but an engine's is from %g to %g; expected times in "
                 "seconds, and rows of this cluster; furthest off is %s (%.4g s measured)",
                 value, number->key, number->min, number->max,
                 place_of(fitting->request, worst, &arena), fitting->request->rows[worst].time_s);
        erg_arena_release(&arena);
        return -1;
    }
    return 0;
}

/* One standard deviation of each constant, from the spread of the fits without a fold. */
static int spread(struct engine_fit *fitting, double logs[][ERG_FIT_MOST_CONSTANTS],
                  double *uncertainty, struct erg_error *err)
{
    size_t folds = fitting->request->folds;
    double prior[ERG_FIT_MOST_CONSTANTS], left[ERG_FIT_MOST_CONSTANTS];
    for (size_t k = 0; k < fitting->constants; k++)
        prior[k] = prior_sd;
    if (erg_least_squares_left(residuals, fitting, fitting->constants, prior,
                               fitting->request->count, logs[folds], left, err) != 0)
        return -1;
    for (size_t k = 0; k < fitting->constants; k++) {
        double mean = 0, sum = 0;
        for (size_t fold = 0; fold < folds; fold++)
            mean += logs[fold][k] / (double)folds;
        for (size_t fold = 0; fold < folds; fold++)
            sum += (logs[fold][k] - mean) * (logs[fold][k] - mean);
        uncertainty[k] =
            left[k] > untold_sd ? INFINITY : sqrt(sum * (double)(folds - 1) / (double)folds);
    }
    return 0;
}

int erg_fit_engine(struct erg_fit *fit, const struct erg_fit_request *request,
                   struct erg_error *err)
{
    struct engine_fit fitting = {.request = request};
    if (check(request, &fitting, err) != 0)
        return -1;
    size_t count = request->count, folds = request->folds;
    double logs[ERG_FIT_MOST_FOLDS + 1][ERG_FIT_MOST_CONSTANTS];
    double *predicted = erg_xcalloc(count, sizeof *predicted);
    *fit = (struct erg_fit){.constants = fitting.constants};
    fitting.fold_of = cut_folds(request);
    int status = 0;
    for (size_t fold = 0; fold < folds && !status; fold++) {
        status = fit_without(&fitting, fold, logs[fold], err);
        size_t rows = 0;
        for (size_t i = 0; i < count && !status; i++) {
            const struct erg_fit_row *row = &request->rows[i];
            if (fitting.fold_of[i] != fold)
                continue;
            erg_fit_predict(&predicted[i], row, 1, &fitting.engine, request->machine);
            fit->fold_mean[fold] += fabs(predicted[i] / row->time_s - 1);
            rows++;
        }
        fit->fold_mean[fold] /= (double)rows;
    }
    if (!status) {
        fit->held_out = erg_fit_judge(predicted, request->rows, count);
        status = fit_without(&fitting, folds, logs[folds], err);
    }
    if (!status) {
        fit->engine = fitting.engine;
        erg_fit_predict(predicted, request->rows, count, &fit->engine, request->machine);
        fit->fitted = erg_fit_judge(predicted, request->rows, count);
        status = check_fitted(&fitting, fit, err) || spread(&fitting, logs, fit->uncertainty, err);
    }
    free(predicted);
    free(fitting.fold_of);
    return status ? -1 : 0;
}
