/*
 * The weights of a model, from and to a folder in Hugging Face's format: config.json and
 * safetensors.
 */
#ifndef ERG_TRAIN_FILES_MODEL_FILE_H
#define ERG_TRAIN_FILES_MODEL_FILE_H

#include "decoder/decoder_weights.h"
#include "job/job.h"

/*
 * Fills this rank's state [weights->state] from a folder. It must have every tensor of the model
 * with its shape, and nothing else except buffers that models keep in addition to weights. A tied
 * head, if present, must equal the embedding bit for bit.
 */
int erg_model_file_load(float *state, const struct erg_weights *weights,
                        const struct erg_weight_spans *spans, const struct erg_model *model,
                        const char *folder, struct erg_error *err);

/* How to compare a folder's config.json with a job's model. */
struct erg_model_terms {
    bool changed;    /* accepts another computation with the same weights */
    bool checkpoint; /* of a run, whose manifest records whether the head is tied */
    bool tells;      /* warns of such a change, and of a folder without a config */
};

/*
 * Checks that a folder's config.json describes the model of a job: positions, norms, activation,
 * biases, heads. Sizes are checked with its tensors.
 */
int erg_model_file_check_config(const char *folder, const struct erg_job *job,
                                const struct erg_model_terms *terms, struct erg_error *err);

/* Checks that the folder has the model's tensors, without reading their elements. */
int erg_model_file_check(const struct erg_model *model, const char *folder, struct erg_error *err);

/* Checks that a model can be written into a folder, which has none or can be created. */
int erg_model_file_check_folder(const char *folder, struct erg_error *err);

/* Copies the files next to a config.json that are not weights, such as the tokenizer, into a
 * folder. */
int erg_model_file_copy_others(const char *config, const char *folder, struct erg_error *err);

/* The most bytes of tensors in one file, by Hugging Face's convention. */
#define ERG_MODEL_FILE_BYTES 5000000000u

/*
 * Writes the state of a whole model (erg_weights_whole()) into a folder, which it creates:
 * model.safetensors or, beyond `most` bytes of tensors, files of at most `most` bytes (a larger
 * tensor gets its own) and model.safetensors.index.json. Adds the model's config.json with the type
 * of the weights, and copies of the files next to it. Refuses a folder that already contains a
 * model.
 */
int erg_model_file_write(const char *folder, const float *state,
                         const struct erg_weight_spans *spans, const struct erg_model *model,
                         bool bf16, uint64_t most, struct erg_error *err);

#endif
