/*
 * The weights of a model, from and to a folder as Hugging Face keeps it: config.json and
 * safetensors.
 */
#ifndef ERG_TRAIN_FILES_MODEL_FILE_H
#define ERG_TRAIN_FILES_MODEL_FILE_H

#include "decoder/decoder_weights.h"
#include "job/job.h"

/*
 * Fills this rank's state [weights->state] from a folder. Every tensor of the model must be there
 * with its shape, and nothing else except buffers that models keep in addition to weights. A tied
 * head that a folder contains nevertheless must equal the embedding bit for bit.
 */
int erg_model_file_load(float *state, const struct erg_weights *weights,
                        const struct erg_weight_spans *spans, const struct erg_model *model,
                        const char *folder, struct erg_error *err);

/* How a folder's config.json is compared with a job's model. */
struct erg_model_terms {
    bool changed;    /* another computation with the same weights will do */
    bool checkpoint; /* of a run, whose manifest records whether the head is tied */
    bool tells;      /* of such a change, and of a folder without a config, by a warning */
};

/* Whether a folder's config.json describes the model of a job: positions, norms, activation,
 * biases, heads. Sizes are checked with its tensors. */
int erg_model_file_check_config(const char *folder, const struct erg_job *job,
                                const struct erg_model_terms *terms, struct erg_error *err);

/* Whether the folder has these tensors, whose elements are not read. */
int erg_model_file_check(const struct erg_model *model, const char *folder, struct erg_error *err);

/* Whether a model could be written into a folder, which is there and holds none, or can be made. */
int erg_model_file_check_folder(const char *folder, struct erg_error *err);

/* Copies the files next to a config.json that are not weights, such as the tokenizer, into a
 * folder. */
int erg_model_file_copy_others(const char *config, const char *folder, struct erg_error *err);

/* The most bytes of tensors in one file, as Hugging Face has it. */
#define ERG_MODEL_FILE_BYTES 5000000000u

/*
 * Writes the state of a whole model (erg_weights_whole()) into a folder, which is made:
 * model.safetensors, or, where that would have more than `most` bytes of tensors, files of at most
 * `most` bytes (a larger tensor has one of its own) and model.safetensors.index.json. config.json
 * is the model's with the type of the weights, and the files next to it are copied. Refuses a
 * folder that already contains a model.
 */
int erg_model_file_write(const char *folder, const float *state,
                         const struct erg_weight_spans *spans, const struct erg_model *model,
                         bool bf16, uint64_t most, struct erg_error *err);

#endif
