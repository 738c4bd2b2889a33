/*
 * Job: a model and the GPUs to train it on, from a YAML file; docs/formats/job.md describes every
 * key.
 *
 * Loading resolves names (model, GPU, software stack), fills defaults, splits the layers and checks
 * everything against everything, so that users of a struct erg_job need not check again. A relative
 * path in the file is relative to the file.
 */
#ifndef ERG_JOB_H
#define ERG_JOB_H

#include "base/text.h"
#include "ergon/error.h"
#include "ergon/job.h"
#include "frontier/goal.h"
#include "hardware/engine.h"
#include "hardware/hardware.h"
#include "job/layout.h"
#include "job/search_method.h"
#include "job/training.h"
#include "model/model.h"
#include "thermal/thermal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The prior of the method `gp`: none, or the model of the emulated GPU, calibrated. */
enum erg_job_prior { ERG_JOB_NO_PRIOR, ERG_JOB_EMULATOR_PRIOR };

/* GPUs of one kind. */
struct erg_job_kind {
    const struct erg_cluster *nodes; /* the job's cluster, or one of its more_nodes */
    struct erg_gpu *gpu;             /* with the nodes' links between its GPUs */
    struct erg_chassis *chassis;     /* with as many slots as a node has GPUs; NULL: not named */
    struct erg_engine *engine; /* what trains whole layers, for ergon layout; NULL: not named */
};

/* The parts of the layout that the file leaves open to a search. */
struct erg_job_open {
    bool tensor, context, pipeline, data, virtual_stages;
    bool microbatch, microbatches; /* with any_layout only; then the key `train.batch` is there */
    bool recompute, offload;
    bool stages; /* no list describes each stage or chunk */
};

struct erg_job {
    const char *name; /* the key "name", else the name of the file without folder and suffix;
                       * control characters are written out */

    struct erg_model *model; /* with the job's overrides; its vocabulary padded where the tensor
                              * degree does not divide it */
    struct erg_cluster cluster;
    struct erg_job_kind *kinds; /* the cluster's own nodes, then its more_nodes */
    size_t kind_count;
    struct erg_gpu *gpu; /* of the first kind; most jobs have one */
    struct erg_stack *stack;
    struct erg_engine *engine; /* likewise */

    /* The product of the degrees is all GPUs of the cluster, and of each kind as many as the stages
     * on it need. Where stages recompute differently, `recompute` is none, and the engine gives the
     * cost of their recomputation; `offload` is the most of any. */
    struct erg_layout layout;
    struct erg_job_open open; /* of it */
    size_t offload_line;      /* in the file; 0: it does not say */
    size_t *stage_kind;       /* [pipeline]: the kind of GPUs that each stage lies on ... */
    bool placed;              /* ... as given, or if there is one; else the first, of any layout */
    bool even_microbatch;     /* it can be split in two equal halves */
    struct erg_job_search {
        enum erg_search_method method;
        enum erg_job_prior prior;
        int budget, start, batch; /* measurements per partition; 0 = the method's default */
        int sweep_clocks;         /* clocks of the time-only sweep; -1 = the method's default */
        uint64_t seed;
    } search;

    struct erg_job_profiler { /* -1 = the profiler's default */
        double window_s, cooldown_s, warmup_s;
    } profiler;

    /* Which point of the iteration's frontier becomes the plan; bounds are those of all GPUs of one
     * pipeline together. */
    struct erg_goal goal;

    const struct erg_training *training; /* NULL: no key `train` */

    char *path; /* of the file */
    char *text; /* that it had when it was read */
    size_t text_length;
    void *file;     /* private: what was read */
    char *own_name; /* private */
};

/* Values from the command line, which win over the file's; 0 or NULL = the file's. */
struct erg_job_overrides {
    long microbatches, microbatch_size, sequence;
    const char *search; /* method */
    const uint64_t *seed;
    /* The job stands for layouts yet to be chosen: its own need not fill the cluster nor say which
     * stages lie where, and its vocabulary is padded by each layout. */
    bool any_layout;
    /* With any_layout: the one in question is the job's own. Where the job places stages on nodes,
     * its degrees are checked as without any_layout. */
    bool own_degrees;
};

/* `overrides` may be NULL. erg_job_parse(): from memory; `name` stands for the file's path. */
int erg_job_load(struct erg_job **job, const char *path, const struct erg_job_overrides *overrides,
                 struct erg_error *err);
int erg_job_parse(struct erg_job **job, const char *name, const char *text, size_t length,
                  const struct erg_job_overrides *overrides, struct erg_error *err);

/* Whether tensor ranks have a share of the stream's rows each: sequence parallelism. */
bool erg_job_splits_stream(const struct erg_job *job);

/* An engine that is ergon's own training runs with the job's sequence parallelism, not its file's.
 */
void erg_job_apply_training(const struct erg_job *job, struct erg_engine *engine);

/* Layers of virtual stage x, in the order of the model. */
static inline long erg_job_chunk_layers(const struct erg_job *job, size_t x)
{
    const long stages = job->layout.pipeline;
    return erg_layout_chunk_layers(&job->layout, job->model->layers, (long)x % stages,
                                   (long)x / stages);
}

/* Values that are written instead of a job's own. */
struct erg_job_change {
    const struct erg_layout *layout;
    const struct erg_cluster *cluster; /* NULL: the job's */
    const char *engine;                /* of the cluster's own nodes; NULL: the job's */
    long vocabulary;
    /* [pipeline]: the nodes that each stage lies on, 0 for the cluster's own, then its more_nodes;
     * where they are several, the names of their GPUs. */
    const size_t *stage_kind;
    const char *const *kind_gpus;
};

/*
 * The job's file with another layout, on as many GPUs as that has, and with its key `train`: keys
 * for the search and choice of schedules keep their defaults. Relative paths become absolute; those
 * of another cluster or engine are from the current folder.
 */
void erg_job_write(struct erg_text *out, const struct erg_job *job,
                   const struct erg_job_change *change);
/* The keys of a layout alone. */
void erg_job_write_layout(struct erg_text *out, const struct erg_layout *layout);

/* Fails where the job shards weights (FSDP) or trains adapters alone (LoRA), which `who` does not.
 */
int erg_job_check_whole(const struct erg_job *job, const char *who, struct erg_error *err);

/* A file that the job names: a relative path is one from the folder of the job's file. To be freed.
 */
char *erg_job_file_path(const struct erg_job *job, const char *name);

#endif
