/*
 * Run layout: the layout of a run where the job leaves it open: the fastest layout by the model of
 * ergon's own engine (layout/search) among those that fit into the memory of the present devices,
 * by the engine's exact allocation. Settings of the job stay.
 */
#ifndef ERG_TRAIN_RUN_RUN_LAYOUT_H
#define ERG_TRAIN_RUN_RUN_LAYOUT_H

#include "base/text.h"
#include "device/backend.h"
#include "job/job.h"

/* The first line of the file of a job with a chosen layout; no other file has it. */
extern const char erg_run_layout_head[];

struct erg_run_layout_request {
    const struct erg_job *job;    /* of any layout, with a key `train` */
    struct erg_backend *backend;  /* is asked for sizes alone */
    const char *init;             /* as in struct erg_trainer_options */
    int world;                    /* ranks */
    double room_bytes;            /* that each may take */
    const struct erg_job *before; /* of an earlier start of the run, whose layout is taken where
                                   * this job allows it; NULL: none */
};

struct erg_run_layout {
    struct erg_text job; /* the job with the layout, a complete file */
    struct erg_text why; /* the layout in words, and why it is this one */
};

/* ERG_INFEASIBLE where no layout fits, or the engine trains none that does. To be released, also
 * after a failure. */
int erg_run_layout_choose(struct erg_run_layout *chosen,
                          const struct erg_run_layout_request *request, struct erg_error *err);
void erg_run_layout_release(struct erg_run_layout *chosen);

#endif
