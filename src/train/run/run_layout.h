/*
 * Run layout: the layout of a run whose job leaves it open: the fastest layout by the model of
 * ergon's own engine (layout/search) among those that fit into the memory of the present devices,
 * by the engine's exact allocation. Keeps settings of the job.
 */
#ifndef ERG_TRAIN_RUN_RUN_LAYOUT_H
#define ERG_TRAIN_RUN_RUN_LAYOUT_H

#include "base/text.h"
#include "device/backend.h"
#include "job/job.h"

/* The first line of the file of a job with a chosen layout; it identifies such files. */
extern const char erg_run_layout_head[];

struct erg_run_layout_request {
    const struct erg_job *job;   /* with any layout, and a key `train` */
    struct erg_backend *backend; /* used only for sizes */
    const char *init;            /* as in struct erg_trainer_options */
    int world;                   /* ranks */
    double room_bytes;           /* bytes that each rank may use */
    /* The job of an earlier start, whose layout is used if possible; NULL: none. */
    const struct erg_job *before;
};

struct erg_run_layout {
    struct erg_text job; /* the job with the layout, a complete file */
    struct erg_text why; /* the layout in words, and the reason for it */
};

/*
 * ERG_INFEASIBLE if no layout fits, or the engine supports none that does. Release it, even after a
 * failure.
 */
int erg_run_layout_choose(struct erg_run_layout *chosen,
                          const struct erg_run_layout_request *request, struct erg_error *err);
void erg_run_layout_release(struct erg_run_layout *chosen);

#endif
