/* Operations of attention by short rows: queries, keys and values from them. */
#include "model/model_internal.h"

/* Products down to short rows are the same on all tensor ranks, those up are split by heads. */
void erg_ops_add_latent(struct erg_model_ops *ops, const struct erg_op_sizes *s, bool backward)
{
    const struct erg_latent *latent = &s->model->latent;
    const double queries = (double)latent->queries, keys = (double)latent->keys;
    const double up = s->R / 2, kv = s->heads * (double)(latent->plain + latent->values);
    const double bytes = (backward ? 6 : 4) * s->T * (queries + keys);
    for (int step = 0; step < 3; step++) {
        const int at = backward ? 2 - step : step;
        if (at == 0) {
            if (queries > 0)
                erg_ops_add_linear(ops, s, ERG_MODEL_Q_DOWN, "q_down", s->h, queries, backward,
                                   true);
            erg_ops_add_linear(ops, s, ERG_MODEL_KV_DOWN, "kv_down", s->h,
                               keys + (double)latent->rotated, backward, true);
        } else if (at == 1) {
            erg_ops_add_memory(ops, ERG_MODEL_NORM_LATENT, "norm_latent", ERG_GROUP_ROPE, bytes,
                               queries > 0 ? 2 : 1);
        } else {
            erg_ops_add_linear(ops, s, ERG_MODEL_Q_UP, "q_up", queries > 0 ? queries : s->h, up,
                               backward, queries == 0);
            erg_ops_add_linear(ops, s, ERG_MODEL_KV_UP, "kv_up", keys, kv, backward, false);
        }
    }
}

void erg_ops_fill_latent(struct erg_model_op *op, const struct erg_op_sizes *s)
{
    const struct erg_latent *latent = &s->model->latent;
    const double queries = (double)latent->queries, keys = (double)latent->keys;
    switch (op->id) {
    case ERG_MODEL_Q_DOWN:
        op->params = s->h * queries;
        break;
    case ERG_MODEL_KV_DOWN:
        op->saved_bytes = 2 * s->rows * s->h; /* the input of both */
        op->params = s->h * (keys + (double)latent->rotated);
        break;
    case ERG_MODEL_NORM_LATENT:
        op->saved_bytes = 2 * s->T * (queries + keys);
        op->params = queries + keys;
        break;
    case ERG_MODEL_Q_UP:
        op->saved_bytes = 2 * s->T * queries;
        op->params = (queries > 0 ? queries : s->h) * s->R / 2;
        break;
    case ERG_MODEL_KV_UP:
        op->saved_bytes = 2 * s->T * keys;
        op->params = keys * s->heads * (double)(latent->plain + latent->values);
        break;
    default:
        break;
    }
}
