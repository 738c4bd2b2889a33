/* A job as it stands in its file, between reading (job.c) and checking (job_check.c). */
#ifndef ERG_JOB_INTERNAL_H
#define ERG_JOB_INTERNAL_H

#include "io/yaml.h"
#include "job/job.h"

/* One member per key; zero where a key is absent. */
struct erg_job_file {
    char *name, *model, *stack, *engine;
    bool tie_embeddings;
    int vocabulary;
    struct erg_cluster cluster;
    struct erg_layout layout; /* without its lists */
    enum erg_schedule_kind schedule;
    int *layers;
    unsigned layers_count;
    char *layers_word; /* in place of a list: alternate+1 */
    enum erg_recompute *stage_recompute;
    unsigned stage_recompute_count;
    double *stage_offload;
    unsigned stage_offload_count;
    char **stage_gpus;
    unsigned stage_gpus_count;
    struct erg_job_search search;
    struct erg_job_profiler profiler;
    enum erg_objective goal;
    double deadline_s, budget_j;
    struct erg_training *train;
    struct erg_job_lora { /* NULL: all weights are trained */
        int rank;
        enum erg_lora_target *targets;
        unsigned targets_count;
    } * lora;
};

/* job_train.c: the keys below `train`; defaults and rules between them, after all others. */
extern const cyaml_schema_field_t erg_training_fields[];
int erg_job_check_training(const struct erg_job *job, struct erg_training *training,
                           const struct erg_yaml *yaml, struct erg_error *err);
/* The same keys as a part of a file, with absolute paths; the batch is that of the layout in the
 * same file. */
void erg_job_write_training(struct erg_text *out, const struct erg_job *job);

/*
 * Fills and checks `job` from `file`, whose cluster it converts to base units; relative names are
 * resolved in the folder of `path`. `file` already contains the values of `overrides`.
 */
int erg_job_resolve(struct erg_job *job, struct erg_job_file *file, const struct erg_yaml *yaml,
                    const char *path, const struct erg_job_overrides *overrides,
                    struct erg_error *err);

/* job_kinds.c: GPUs and engines of all nodes; the kind of each stage; whether the nodes of every
 * kind have as many GPUs as its stages need. */
int erg_job_load_kinds(struct erg_job *job, const struct erg_job_file *file,
                       const struct erg_yaml *yaml, struct erg_error *err);
int erg_job_place_stages(struct erg_job *job, const struct erg_job_file *file,
                         const struct erg_yaml *yaml, bool any_layout, struct erg_error *err);
int erg_job_check_nodes(const struct erg_job *job, const struct erg_yaml *yaml,
                        struct erg_error *err);
/* Whether the engines by which stages offload or recompute were measured on their GPUs. */
int erg_job_check_engines(const struct erg_job *job, const struct erg_yaml *yaml,
                          struct erg_error *err);

/* job_write.c: with enough digits to be exact, so that the planned value is read back. */
void erg_job_write_number(struct erg_text *out, double value);

/* job_names.c: whether a name is a path, else of a catalogue's entry; a name that is a relative
 * path is one from the job's folder; to be freed. A model is also a folder's bare name there, which
 * comes before the catalogue's. */
bool erg_job_is_path(const char *name);
char *erg_job_relative_to(const char *path, const char *name);
char *erg_job_model_path(const char *path, const char *name);

#endif
