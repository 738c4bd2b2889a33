/*
 * Checkpoints: everything that a run needs to go on, in a folder that is whole or not there.
 *
 *     RUN/step-00001000/manifest.json            what it is, and every piece with its hash
 *                       state-00000.safetensors  masters and moments of rank 0, float
 *                       job.yaml, config.json    as at the start of the run; plan.json of a
 *                                                run by a plan; files of the tokenizer
 *     RUN/latest                                 a link to the newest
 *
 * A piece is a rectangle of a tensor of a Hugging Face checkpoint, of the masters or of a moment:
 * "master/NAME@r0:r1,c0:c1". So another layout finds its own parts by name, and checkpoints contain
 * no padding. Weights in use are rounded from masters and not saved. Order of data and learning
 * rate are functions of the numbers in the manifest; there is no other state.
 *
 * Each rank writes its share of the state; one rank writes the parts that several ranks hold. All
 * ranks see the folder.
 *
 * Files are written into a folder of a temporary name, synced, and the folder is renamed last. A
 * folder without a manifest is not a checkpoint. The manifest, the config and pieces are checked by
 * XXH3 when they are read.
 */
#ifndef ERG_TRAIN_CHECKPOINT_H
#define ERG_TRAIN_CHECKPOINT_H

#include "decoder/decoder_weights.h"
#include "job/job.h"
#include "launch/rendezvous.h"

#include <stdbool.h>
#include <stdint.h>

/* Where a run stands. */
struct erg_checkpoint_place {
    uint64_t step, updates, samples, tokens;
};

/* A rank's share of masters and moments, [weights->state] each, in memory of the host. */
struct erg_checkpoint_state {
    const struct erg_weights *weights;
    const struct erg_weight_spans *spans;
    int rank;
    struct erg_rendezvous *rendezvous; /* of the ranks; NULL: one rank */
    float *master, *m, *v;
    /* The inputs of the order of samples other than seed and sequence; NULL: not given. `changed`:
     * a run may go on from a checkpoint of another batch, seed or data. */
    const char *data;
    bool changed;
    const char *plan; /* the text of the plan that the run is trained by; NULL: none */
    /* Asked at rank 0 before a checkpoint gets its name, which it does not get if this fails. NULL:
     * no objection. */
    int (*may_commit)(void *context, struct erg_error *err);
    void *commit_context;
};

/*
 * A checkpoint that is being written, RUN/step-N. It is begun, each rank's share is written by a
 * thread of that rank's, and it is finished: `latest` points at it, and checkpoints before the
 * newest `keep` are removed. Until then no other one is begun in this run. After a failure (a full
 * disk) there is no new checkpoint, and older ones are unchanged.
 */
struct erg_checkpoint_writer;

/* World call. The memory to which the state points must not change until the writer is freed. */
int erg_checkpoint_begin(struct erg_checkpoint_writer **writer, const char *run,
                         const struct erg_job *job, const struct erg_checkpoint_place *place,
                         const struct erg_checkpoint_state *state, int keep, struct erg_error *err);
/* Whether this rank's share is there, or has failed: the end of it need not be waited for. */
bool erg_checkpoint_written(const struct erg_checkpoint_writer *writer);
/* World call; the writer is gone. */
int erg_checkpoint_finish(struct erg_checkpoint_writer *writer, struct erg_error *err);
/* Where a run fails: gives the checkpoint up. The writer is gone; NULL is fine. */
void erg_checkpoint_give_up(struct erg_checkpoint_writer *writer);

/*
 * World call: reads the checkpoint in a folder; or of a run's folder, or through its link `latest`,
 * the newest one, and where that is damaged the one before it, with a warning. Every element must
 * be covered exactly once by pieces of its name and kind. The model's sizes and the sequence must
 * be the job's, and, if changes are not allowed, so must batch, seed, data and the model's other
 * properties. *found: the folder that was read, which the caller frees; NULL where the run has no
 * checkpoint, which is not a failure.
 */
int erg_checkpoint_load(const char *path, const struct erg_job *job,
                        struct erg_checkpoint_place *place,
                        const struct erg_checkpoint_state *state, char **found,
                        struct erg_error *err);

/* World call: the masters of all ranks become a model in a folder (files/model_file.h), which rank
 * 0 writes. Moments are not looked at. */
int erg_checkpoint_export(const char *folder, const struct erg_job *job,
                          const struct erg_checkpoint_state *state, bool bf16,
                          struct erg_error *err);

/* The properties that a checkpoint and a model must share; the caller frees them. */
char *erg_checkpoint_model(const struct erg_model *model);

/* Whether a text is a manifest; `name` stands for it in messages. */
struct erg_checkpoint_manifest;
int erg_checkpoint_parse(struct erg_checkpoint_manifest **manifest, const char *name,
                         const char *text, size_t length, struct erg_error *err);
void erg_checkpoint_manifest_free(struct erg_checkpoint_manifest *manifest);

#endif
