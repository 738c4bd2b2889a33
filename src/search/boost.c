#include "search/boost_internal.h"

#include "base/memory.h"

#include <xgboost/c_api.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int rounds = 100;
static const double rescaled_range = 10.0;

static int library_error(struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED, "fitting boosted trees: libxgboost says: %s",
                    XGBGetLastError());
}

int erg_boost_rows_init(struct erg_boost_rows *rows, const float *features, size_t count,
                        size_t columns, struct erg_error *err)
{
    *rows = (struct erg_boost_rows){.count = count};
    if (XGDMatrixCreateFromMat(features, count, columns, NAN, &rows->handle))
        return library_error(err);
    return 0;
}

void erg_boost_rows_release(struct erg_boost_rows *rows)
{
    if (rows->handle)
        XGDMatrixFree(rows->handle);
    *rows = (struct erg_boost_rows){0};
}

static int set_parameters(BoosterHandle booster, double base_score, unsigned seed,
                          struct erg_error *err)
{
    char base[64], seed_text[32];
    snprintf(base, sizeof base, "%.9g", base_score);
    snprintf(seed_text, sizeof seed_text, "%u", seed);
    const char *parameters[][2] = {
        {"verbosity", "0"},
        {"nthread", "1"},
        {"objective", "reg:squarederror"},
        {"eta", "0.3"},
        {"max_depth", "6"},
        {"min_child_weight", "1"},
        {"subsample", "0.8"},
        {"colsample_bytree", "0.8"},
        {"tree_method", "exact"},
        {"base_score", base},
        {"seed", seed_text},
    };
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (XGBoosterSetParam(booster, parameters[i][0], parameters[i][1]))
            return library_error(err);
    return 0;
}

static int train_and_predict(DMatrixHandle train, double base_score, unsigned seed,
                             const struct erg_boost_rows *ask, double *predictions,
                             struct erg_error *err)
{
    BoosterHandle booster = NULL;
    if (XGBoosterCreate(&train, 1, &booster))
        return library_error(err);
    int status = set_parameters(booster, base_score, seed, err);
    for (int round = 0; round < rounds && !status; round++)
        if (XGBoosterUpdateOneIter(booster, round, train))
            status = library_error(err);
    bst_ulong length = 0;
    const float *values = NULL;
    if (!status && XGBoosterPredict(booster, ask->handle, 0, 0, 0, &length, &values))
        status = library_error(err);
    for (size_t i = 0; i < ask->count && !status; i++)
        predictions[i] = values[i];
    XGBoosterFree(booster);
    return status;
}

int erg_boost_fit_predict(const float *features, const double *targets, size_t count,
                          size_t columns, bool rescale, unsigned seed,
                          const struct erg_boost_rows *ask, double *predictions,
                          struct erg_error *err)
{
    double low = INFINITY, high = -INFINITY, scale = 1.0, mean = 0.0;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, targets[i]);
        high = fmax(high, targets[i]);
    }
    if (!rescale)
        low = 0.0;
    else if (high > low)
        scale = rescaled_range / (high - low);
    float *labels = erg_xcalloc(count, sizeof *labels);
    for (size_t i = 0; i < count; i++) {
        labels[i] = (float)((targets[i] - low) * scale);
        mean += labels[i] / (double)count;
    }
    struct erg_boost_rows train;
    int status = erg_boost_rows_init(&train, features, count, columns, err);
    if (!status && XGDMatrixSetFloatInfo(train.handle, "label", labels, count))
        status = library_error(err);
    if (!status)
        status = train_and_predict(train.handle, mean, seed, ask, predictions, err);
    for (size_t i = 0; i < ask->count && !status; i++)
        predictions[i] = predictions[i] / scale + low;
    erg_boost_rows_release(&train);
    free(labels);
    return status;
}
