/*
 * A study that was run, read from its folder: all marks of sweep.json, each with the result of its
 * point. Figures and findings use it; nothing is run.
 */
#ifndef ERG_CHARACTERIZE_COLLECTION_H
#define ERG_CHARACTERIZE_COLLECTION_H

#include "characterize/result.h"

/* A mark, with the keys of its point by which it is found and drawn. */
struct erg_collected {
    const char *name, *id, *model, *label, *optimisation, *variant;
    bool equal; /* an earlier mark has the same point */
    const char *recompute, *overlap, *placement;
    long microbatch, batch, sequence;
    long tensor, pipeline, expert, fsdp, data; /* degrees; 0: unknown, of an impossible layout */
    bool split;                                /* stages differ in layers */
    double inlet_c;                            /* NaN: the chassis's */
    double fault_clock_share;                  /* NaN: no fault */
    long lora_rank;
    /* The result of its point; status "skipped" if it was not run. */
    const struct erg_study_result *result;
    const struct erg_study_result *twin; /* of a measured point: the same point emulated; NULL:
                                          * none */
};

struct erg_collection {
    const char *name, *cluster;
    long seed;
    struct erg_collected *marks;
    size_t count;
    int *figures; /* figures that the study's file lists */
    size_t figure_count;
    struct erg_arena arena; /* private */
    json_t **roots;
    size_t root_count;
};

int erg_collection_load(struct erg_collection **collection, const char *folder,
                        struct erg_error *err);
void erg_collection_free(struct erg_collection *collection); /* NULL is fine */

#endif
