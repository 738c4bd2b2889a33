/* Boosted trees by libxgboost, which is opened when a search asks for them. */
#include "search/boost_internal.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int rounds = 100;
static const double rescaled_range = 10.0;

#define ENTRY(member, name)                                                                        \
    {                                                                                              \
        offsetof(struct erg_boost, member), name                                                   \
    }
static const struct {
    size_t offset;
    const char *name;
} entries[] = {
    ENTRY(last_error, "XGBGetLastError"),       ENTRY(matrix_new, "XGDMatrixCreateFromMat"),
    ENTRY(matrix_free, "XGDMatrixFree"),        ENTRY(matrix_set, "XGDMatrixSetFloatInfo"),
    ENTRY(booster_new, "XGBoosterCreate"),      ENTRY(booster_free, "XGBoosterFree"),
    ENTRY(booster_set, "XGBoosterSetParam"),    ENTRY(booster_update, "XGBoosterUpdateOneIter"),
    ENTRY(booster_predict, "XGBoosterPredict"),
};

int erg_boost_open(struct erg_boost *boost, struct erg_error *err)
{
    const char *path = getenv("ERGON_XGBOOST");
    if (!path)
        path = "libxgboost.so.0";
    /* Never unloaded: a library of C++ with threads may not survive that. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return erg_fail(err, ERG_FAILED,
                        "the search 'trees' needs libxgboost, which cannot be opened (%s); "
                        "expected it installed (Debian: libxgboost0), or another search",
                        dlerror());
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = dlsym(library, entries[i].name);
        if (!entry)
            return erg_fail(err, ERG_FAILED,
                            "the search 'trees' needs libxgboost: '%s' has no function %s, "
                            "expected one like that of Debian's libxgboost0",
                            path, entries[i].name);
        memcpy((char *)boost + entries[i].offset, &entry, sizeof entry);
    }
    return 0;
}

static int library_error(const struct erg_boost *boost, struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED, "fitting boosted trees: libxgboost reports: %s",
                    boost->last_error());
}

int erg_boost_rows_init(struct erg_boost_rows *rows, const struct erg_boost *boost,
                        const float *features, size_t count, size_t columns, struct erg_error *err)
{
    *rows = (struct erg_boost_rows){.boost = boost, .count = count};
    if (boost->matrix_new(features, count, columns, NAN, &rows->handle))
        return library_error(boost, err);
    return 0;
}

void erg_boost_rows_release(struct erg_boost_rows *rows)
{
    if (rows->handle)
        rows->boost->matrix_free(rows->handle);
    *rows = (struct erg_boost_rows){0};
}

static int set_parameters(const struct erg_boost *boost, void *booster, double base_score,
                          unsigned seed, struct erg_error *err)
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
        if (boost->booster_set(booster, parameters[i][0], parameters[i][1]))
            return library_error(boost, err);
    return 0;
}

static int train_and_predict(void *train, double base_score, unsigned seed,
                             const struct erg_boost_rows *ask, double *predictions,
                             struct erg_error *err)
{
    const struct erg_boost *boost = ask->boost;
    void *booster = NULL;
    if (boost->booster_new(&train, 1, &booster))
        return library_error(boost, err);
    int status = set_parameters(boost, booster, base_score, seed, err);
    for (int round = 0; round < rounds && !status; round++)
        if (boost->booster_update(booster, round, train))
            status = library_error(boost, err);
    uint64_t length = 0;
    const float *values = NULL;
    if (!status && boost->booster_predict(booster, ask->handle, 0, 0, 0, &length, &values))
        status = library_error(boost, err);
    for (size_t i = 0; i < ask->count && !status; i++)
        predictions[i] = values[i];
    boost->booster_free(booster);
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
    int status = erg_boost_rows_init(&train, ask->boost, features, count, columns, err);
    if (!status && ask->boost->matrix_set(train.handle, "label", labels, count))
        status = library_error(ask->boost, err);
    if (!status)
        status = train_and_predict(train.handle, mean, seed, ask, predictions, err);
    for (size_t i = 0; i < ask->count && !status; i++)
        predictions[i] = predictions[i] / scale + low;
    erg_boost_rows_release(&train);
    free(labels);
    return status;
}
