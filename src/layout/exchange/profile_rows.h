/* A job's frontiers over layouts as rows of the profiles that simulations read. */
#ifndef ERG_LAYOUT_PROFILE_ROWS_H
#define ERG_LAYOUT_PROFILE_ROWS_H

#include "base/text.h"
#include "layout/energy/choice.h"

/* The first columns of all rows about a number of GPUs. */
struct erg_profile_shape {
    const struct erg_model *model;
    const char *gpu; /* the type's name */
    long batch, nodes, node_gpus;
};

/* The model's name in such rows: without its owner; for a config.json, the name of its folder. */
void erg_profile_rows_family(const struct erg_model *model, char family[80]);
/* The model's size in such rows: "6.74B". */
void erg_profile_rows_size(const struct erg_model *model, char size[32]);

/* To six digits, which exceed the accuracy of the time model. */
double erg_profile_rows_rounded(double value);

void erg_profile_rows_header(struct erg_text *out);
/* -1 s: no layout fits; NAN W: not known. */
void erg_profile_rows_row(struct erg_text *out, const struct erg_profile_shape *shape,
                          double time_s, double power_w);

/*
 * Appends rows of prof_optimal.csv (cluster/speed_table.h) with their header: for each number of
 * GPUs of the request's searches the frontier over layouts and clocks, at most six points from the
 * fastest to the least energy, or a row for "nothing fits". `gpu` is the type's name,
 * `gpus_per_node` that of its nodes. All searches must have the same batch.
 */
int erg_profile_rows(struct erg_text *out, const struct erg_layout_choice_request *request,
                     const char *gpu, int gpus_per_node, struct erg_error *err);

/*
 * The fastest of such rows, with their header, for one GPU of a type. INFINITY s: none of the
 * type's rows has a time for one GPU; NAN s: no row is of the type; NAN W: not known.
 */
int erg_profile_rows_one_gpu(double *time_s, double *power_w, const struct erg_text *rows,
                             const char *gpu, struct erg_error *err);

/* Multiplies the times and powers of a type, where the rows have them. */
int erg_profile_rows_scale(struct erg_text *rows, const char *gpu, double times, double powers,
                           struct erg_error *err);

/* Puts a frontier, with energies of all GPUs, in the place of a shape's rows: one row a point, with
 * all digits. */
int erg_profile_rows_replace(struct erg_text *rows, const struct erg_profile_shape *shape,
                             const struct erg_frontier *frontier, struct erg_error *err);

#endif
