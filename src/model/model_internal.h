/* Shared by the files of model/ only: reading configs, and the pieces of op lists. */
#ifndef ERG_MODEL_INTERNAL_H
#define ERG_MODEL_INTERNAL_H

#include "io/json.h"
#include "model/model.h"

/* ---- configs ---- */

static inline int optional_bool(const struct erg_json_place *place, const char *key, bool *value,
                                struct erg_error *err)
{
    return erg_json_has(place, key) ? erg_json_bool(place, key, value, err) : 0;
}

static inline int optional_long(const struct erg_json_place *place, const char *key, long max,
                                long *value, struct erg_error *err)
{
    return erg_json_has(place, key) ? erg_json_long(place, key, 1, max, value, err) : 0;
}

static inline int optional_double(const struct erg_json_place *place, const char *key, double min,
                                  double max, double *value, struct erg_error *err)
{
    return erg_json_has(place, key) ? erg_json_double(place, key, min, max, value, err) : 0;
}

/* Keys of the configs of mixtures of experts in addition to those of Llama. */
int erg_model_read_mixtral(struct erg_model *model, const struct erg_json_place *place,
                           struct erg_error *err);
int erg_model_read_qwen_moe(struct erg_model *model, const struct erg_json_place *place,
                            struct erg_error *err);
int erg_model_read_deepseek(struct erg_model *model, const struct erg_json_place *place,
                            struct erg_error *err);

/* ---- op lists ---- */

/* The sizes of the formulas in model.h. */
struct erg_op_sizes {
    const struct erg_model *model;
    double t, c;
    double T;         /* local tokens */
    double rows;      /* of these in the stream */
    double S;         /* tokens of one whole sequence */
    double kv_tokens; /* tokens of the gathered keys and values: sequences x sequence */
    double h, Q, R, O, F, V;
    double heads; /* of queries on one GPU */
    double kv;    /* width of the keys (and of the values) on one GPU */
    double tile_m, tile_n, head_factor;
    bool parts; /* the stream has a share of the tokens */
    bool fused, norms_again, activation_again;
    double e; /* expert ranks */
    struct erg_model_rows experts;
    bool grouped;
};

struct erg_model_op *erg_ops_add(struct erg_model_ops *ops, enum erg_model_op_id id,
                                 const char *name, enum erg_model_group group);
void erg_ops_add_memory(struct erg_model_ops *ops, enum erg_model_op_id id, const char *name,
                        enum erg_model_group group, double bytes, int kernels);
/* An M x N result over an inner length K, operands and result through HBM once. */
struct erg_op erg_ops_gemm(const struct erg_op_sizes *sizes, double m, double n, double k);
/* A product of all local tokens. `gathered`: its input is gathered into the place of the input
 * gradient, so the weight gradient comes first. */
void erg_ops_add_linear(struct erg_model_ops *ops, const struct erg_op_sizes *sizes,
                        enum erg_model_op_id id, const char *name, double in, double out,
                        bool backward, bool gathered);

/* The operations of a mixture of experts between the norm before it and the residual add
 * (expert_ops.c). */
void erg_ops_add_experts(struct erg_model_ops *ops, const struct erg_op_sizes *sizes,
                         bool backward);
/* Saved bytes and parameters of these. */
void erg_ops_fill_experts(struct erg_model_op *op, const struct erg_op_sizes *sizes);

/* Queries, keys and values by short rows (latent_ops.c). */
void erg_ops_add_latent(struct erg_model_ops *ops, const struct erg_op_sizes *sizes, bool backward);
void erg_ops_fill_latent(struct erg_model_op *op, const struct erg_op_sizes *sizes);

#endif
