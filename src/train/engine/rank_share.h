/* Rank share: a rank's part of a model, as the options of its stage. */
#ifndef ERG_TRAIN_ENGINE_RANK_SHARE_H
#define ERG_TRAIN_ENGINE_RANK_SHARE_H

#include "decoder/decoder_stage.h"
#include "job/job.h"
#include "train/engine/ranks.h"

/* The job has a key `train`. *chunks: the list that the options point to; free it. */
struct erg_stage_options erg_rank_share(struct erg_layer_range **chunks, const struct erg_job *job,
                                        const struct erg_ranks *ranks, struct erg_backend *backend);

#endif
