/* Internal to studies: the contents of a study's file. */
#ifndef ERG_CHARACTERIZE_STUDY_INTERNAL_H
#define ERG_CHARACTERIZE_STUDY_INTERNAL_H

#include "characterize/study.h"
#include "io/yaml.h"

struct study_fault {
    int node;
    double clock_share;
};

struct study_lora {
    int rank;
    char **targets;
    unsigned targets_count;
};

/* Keys that may be at the top level or in an entry; missing lists are NULL. */
struct study_axes {
    int sequence, vocabulary; /* 0: not given */
    int *microbatch;
    char **optimisations, **overlap, **recompute, **layers, **placement;
    double *clocks, *power_w, *inlet_c;
    struct study_fault *faults;
    struct study_lora *lora; /* NULL: not given */
    unsigned microbatch_count, optimisations_count, overlap_count, recompute_count, layers_count,
        placement_count, clocks_count, power_w_count, inlet_c_count, faults_count;
};

struct study_entry {
    struct study_axes axes; /* first, as in the file; both levels have the same schema */
    char *model;
    char **layouts;
    unsigned layouts_count;
};

struct study_settle {
    double seconds;
    double slope_k_per_min;
    int most_iterations;
};

struct study_record {
    double window_s;
    double period_ms;
    char *sensor;
};

struct study_trace {
    char *ranks;
};

struct study_file {
    struct study_axes axes;
    char *name, *cluster, *engine;
    int batch, repeats;
    double seed;
    struct study_settle settle;
    struct study_record record;
    struct study_trace trace;
    struct study_entry *points;
    unsigned points_count;
    int *figures;
    unsigned figures_count;
};

/* Parses and checks a file, without the files that it names. */
int erg_study_file_read(struct study_file **file, const struct erg_yaml *yaml,
                        struct erg_error *err);
void erg_study_file_free(struct study_file *file);

/* Creates the study's points and marks from its file; the machine must be loaded. */
int erg_study_expand(struct erg_study *study, const struct study_file *file,
                     const struct erg_yaml *yaml, const char *path, struct erg_error *err);

/* The model of entry `entry`, loaded once per vocabulary; the study owns it. */
int erg_study_model(struct erg_study *study, const struct erg_model **model, const char *name,
                    long vocabulary, const char *path, const struct erg_yaml *yaml, unsigned entry,
                    struct erg_error *err);

/* The ID of a point whose keys are set. */
void erg_study_set_id(const struct erg_study *study, struct erg_study_point *point);

/* Its overlap and recomputation; NULL: no such name. */
struct study_optimisation {
    const char *name;
    bool overlaps, recomputes;
};
extern const struct study_optimisation erg_study_optimisations[]; /* ends with a NULL name */

extern const char *const erg_study_overlap_names[]; /* in the order of the bits
                                                     * ERG_STUDY_OVERLAP_… */

#endif
