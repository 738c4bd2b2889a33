/*
 * Checkpoints: everything that a run needs to continue, in a folder that is complete or does not
 * exist.
 *
 *     RUN/step-00001000/manifest.json            what it is, and every piece with its hash
 *                       state-00000.safetensors  masters and moments of rank 0, float
 *                       job.yaml, config.json    as at the start of the run; plan.json of a
 *                                                run by a plan; files of the tokenizer
 *     RUN/latest                                 a link to the newest
 *
 * A piece is a rectangle of a tensor of a Hugging Face checkpoint, of the masters or of a moment:
 * "master/NAME@r0:r1,c0:c1". So another layout finds its own parts by name, and checkpoints contain
 * no padding. Weights in use are rounded from masters and not saved. The order of data and the
 * learning rate are functions of the numbers in the manifest; there is no other state.
 *
 * Each rank writes its share of the state; one rank writes the parts that several ranks hold. All
 * ranks see the folder.
 *
 * Files are written into a folder with a temporary name and synced; the folder is renamed last. A
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

/* The progress of a run. */
struct erg_checkpoint_place {
    uint64_t step, updates, samples, tokens;
};

/* A rank's share of masters and moments, [weights->state] each, in host memory. */
struct erg_checkpoint_state {
    const struct erg_weights *weights;
    const struct erg_weight_spans *spans;
    int rank;
    struct erg_rendezvous *rendezvous; /* of the ranks; NULL: one rank */
    float *master, *m, *v;
    /*
     * The inputs of the order of samples other than seed and sequence; NULL: not given. `changed`:
     * a run may continue from a checkpoint with another batch, seed or data.
     */
    const char *data;
    bool changed;
    const char *plan; /* the text of the plan that the run follows; NULL: none */
    /*
     * Called at rank 0 before a checkpoint gets its name; if it fails, the checkpoint gets none.
     * NULL: no check.
     */
    int (*may_commit)(void *context, struct erg_error *err);
    void *commit_context;
};

/*
 * A checkpoint during its writing, RUN/step-N. After the begin, a thread of each rank writes the
 * rank's share. The finish points `latest` at it and removes all but the newest `keep`. A run
 * begins no other checkpoint until then. After a failure (a full disk) there is no new checkpoint,
 * and older ones are unchanged.
 */
struct erg_checkpoint_writer;

/* World call. The state's memory must not change until the writer is freed. */
int erg_checkpoint_begin(struct erg_checkpoint_writer **writer, const char *run,
                         const struct erg_job *job, const struct erg_checkpoint_place *place,
                         const struct erg_checkpoint_state *state, int keep, struct erg_error *err);
/* Whether this rank's share is complete or has failed, so that finish need not wait for it. */
bool erg_checkpoint_written(const struct erg_checkpoint_writer *writer);
/* World call; frees the writer. */
int erg_checkpoint_finish(struct erg_checkpoint_writer *writer, struct erg_error *err);
/* Abandons the checkpoint of a failed run. Frees the writer; NULL is fine. */
void erg_checkpoint_give_up(struct erg_checkpoint_writer *writer);

/*
 * World call: reads the checkpoint in a folder. In a run's folder, or through its link `latest`,
 * reads the newest one or, if that is damaged, the previous one with a warning. Every element must
 * be covered exactly once by pieces of its name and kind. The model's sizes and the sequence must
 * match the job and, if changes are not allowed, so must batch, seed, data and the model's other
 * properties. *found: the folder that was read, which the caller frees; NULL: the run has no
 * checkpoint, which is not a failure.
 */
int erg_checkpoint_load(const char *path, const struct erg_job *job,
                        struct erg_checkpoint_place *place,
                        const struct erg_checkpoint_state *state, char **found,
                        struct erg_error *err);

/*
 * World call: rank 0 writes the masters of all ranks as a model into a folder (files/model_file.h).
 * Ignores moments.
 */
int erg_checkpoint_export(const char *folder, const struct erg_job *job,
                          const struct erg_checkpoint_state *state, bool bf16,
                          struct erg_error *err);

/* The properties that a checkpoint and a model must share; the caller frees them. */
char *erg_checkpoint_model(const struct erg_model *model);

/* Checks a manifest; `name` is its name in messages. */
struct erg_checkpoint_manifest;
int erg_checkpoint_parse(struct erg_checkpoint_manifest **manifest, const char *name,
                         const char *text, size_t length, struct erg_error *err);
void erg_checkpoint_manifest_free(struct erg_checkpoint_manifest *manifest);

#endif
