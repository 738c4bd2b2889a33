/*
 * The weights of a model, from and to a folder as Hugging Face keeps it: config.json and
 * safetensors.
 */
#ifndef ERG_TRAIN_FILES_MODEL_FILE_H
#define ERG_TRAIN_FILES_MODEL_FILE_H

#include "decoder/decoder_weights.h"

/*
 * Fills this rank's state [weights->state] from a folder. Every tensor of the model must be there
 * with its shape, and nothing else but buffers that models keep beside weights. A tied head that a
 * folder has nevertheless must equal the embedding bit for bit.
 */
int erg_model_file_load(float *state, const struct erg_weights *weights,
                        const struct erg_weight_spans *spans, const struct erg_model *model,
                        const char *folder, struct erg_error *err);

/* Whether the folder has these tensors, whose elements are not read. */
int erg_model_file_check(const struct erg_model *model, const char *folder, struct erg_error *err);

/* Whether a model could be written into a folder, which is there and holds none, or can be made. */
int erg_model_file_check_folder(const char *folder, struct erg_error *err);

/* Copies what lies beside a config.json and is not of the weights, such as the tokenizer, into a
 * folder. */
int erg_model_file_copy_others(const char *config, const char *folder, struct erg_error *err);

/*
 * Writes the state of a whole model (erg_weights_whole()) into a folder, which is made: config.json
 * is a copy of `config`'s, and so is what lies beside it. Refuses a folder that holds a model
 * already.
 */
int erg_model_file_write(const char *folder, const float *state,
                         const struct erg_weight_spans *spans, const char *config, bool bf16,
                         struct erg_error *err);

#endif
