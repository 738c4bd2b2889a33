/*
 * Characterize: studies of a training job in every combination of model, layout, microbatch and
 * optimisation, with the heat, power and traffic of every GPU, on an emulated cluster or on this
 * machine.
 *
 *     struct erg_characterization *study;
 *     struct erg_characterization_options options = {
 *         .size = sizeof options, .file = "sweep.yaml", .folder = "out"};
 *     if (erg_characterize(&study, &options, &err)) ...
 *     puts(erg_characterization_json(study));
 *     erg_characterization_free(study);
 *
 * The folder gets sweep.json, points/ID.json, figures/, findings.json and report.html:
 * ergon-characterize(1), docs/formats/study.md. A point whose file exists is not run again, so the
 * same call continues after an interruption and ends with the same bytes.
 */
#ifndef ERGON_CHARACTERIZE_H
#define ERGON_CHARACTERIZE_H

#include "ergon/error.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_characterization;

/* Texts need not outlive the call. */
struct erg_characterization_options {
    size_t size;
    const char *file;    /* the study. NULL: only redraws figures and findings of the folder */
    const char *folder;  /* NULL: the study's name */
    const char *only;    /* points whose names match this shell pattern; NULL: all */
    const char *figures; /* "4,8"; NULL: those of the study */
    const char *right;   /* the right axis: "eff_edp" (NULL), "tokens_per_j", "j_per_token" */
    const char *sensor;  /* "hopper", "exact"; NULL: the study's */
    double transient_s;  /* above 0: seconds from a cold start, instead of the steady state */
    int64_t jobs;        /* points at a time; 0: one per core */
    int32_t retry;       /* 1: runs failed points again */
    int32_t seeded;      /* 1: `seed` replaces the study's */
    uint64_t seed;
    const struct erg_watch *watch;
    int32_t list;        /* 1: lists the points and runs nothing */
    const char *device;  /* "emulated" (NULL), or "host", "cuda": points are also trained here */
    const char *program; /* the command ergon, which trains points; NULL: from PATH */
    const char *const *others; /* folders of studies, for findings that compare clusters */
    size_t other_count;
    int32_t lock_clocks; /* 1, with "cuda": locks the SM clocks that points ask for */
};

/*
 * Fails for wrong files, with line and key, and if another process works in the folder. Points that
 * fail or do not fit do not fail the call: erg_characterization_counts() counts them.
 */
int erg_characterize(struct erg_characterization **study,
                     const struct erg_characterization_options *options, struct erg_error *err);
void erg_characterization_free(struct erg_characterization *study); /* NULL is fine */

struct erg_characterization_counts {
    size_t size;
    int64_t ran; /* points run in this call */
    int64_t ok, memory, impossible, failed, skipped;
    int64_t failed_findings; /* published findings that do not hold for these points */
};

int erg_characterization_counts(const struct erg_characterization *study,
                                struct erg_characterization_counts *counts, struct erg_error *err);

/* All points and findings as JSON (schema "ergon.characterization"), which lives as long as the
 * answer. */
const char *erg_characterization_json(const struct erg_characterization *study);

/* For people, with the same lifetime: a table of its points, or with `list` the points to run; and
 * its findings. NULL: out of memory. */
const char *erg_characterization_text(const struct erg_characterization *study);
const char *erg_characterization_findings(const struct erg_characterization *study);

/* ERG_FAILED if points failed, ERG_INFEASIBLE if none fits. */
int erg_characterization_check(const struct erg_characterization *study, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
