/*
 * A study that was run, as its folder has it: all marks of sweep.json, each with the result of its
 * point. What figures and findings are made of; nothing is run.
 */
#ifndef ERG_CHARACTERIZE_COLLECTION_H
#define ERG_CHARACTERIZE_COLLECTION_H

#include "characterize/result.h"

/* A mark, with those keys of its point that it is found and drawn by. */
struct erg_collected {
    const char *name, *id, *model, *label, *optimisation, *variant;
    bool equal; /* a mark before it has the same point */
    const char *recompute, *overlap, *placement;
    long microbatch, batch, sequence;
    long tensor, pipeline, expert, fsdp, data; /* degrees; 0: not known, of one that cannot be */
    bool split;                                /* stages differ in layers */
    double inlet_c;                            /* NaN: the chassis's own */
    double fault_clock_share;                  /* NaN: no fault */
    long lora_rank;
    /* Of its point. Where it was not run, one of the status "skipped". */
    const struct erg_study_result *result;
    const struct erg_study_result *twin; /* of a measured point, the same emulated; NULL: none */
};

struct erg_collection {
    const char *name, *cluster;
    long seed;
    struct erg_collected *marks;
    size_t count;
    int *figures; /* that the study's file wants */
    size_t figure_count;
    struct erg_arena arena; /* private */
    json_t **roots;
    size_t root_count;
};

int erg_collection_load(struct erg_collection **collection, const char *folder,
                        struct erg_error *err);
void erg_collection_free(struct erg_collection *collection); /* NULL is fine */

#endif
