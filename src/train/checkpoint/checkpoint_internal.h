/* Checkpoints: the manifest. */
#ifndef ERG_TRAIN_CHECKPOINT_INTERNAL_H
#define ERG_TRAIN_CHECKPOINT_INTERNAL_H

#include "train/checkpoint/checkpoint.h"

enum { ERG_CHECKPOINT_KINDS = 3, ERG_CHECKPOINT_VERSION = 1 };
extern const char *const erg_checkpoint_kinds[ERG_CHECKPOINT_KINDS]; /* "master", "m", "v" */

struct erg_checkpoint_piece {
    char *name; /* of the tensor in a Hugging Face checkpoint */
    int kind;
    uint64_t row, row_end, column, column_end;
    char *file;    /* in the folder */
    uint64_t hash; /* XXH3 of its bytes */
};

struct erg_checkpoint_manifest {
    struct erg_checkpoint_place place;
    uint64_t seed;
    long batch, sequence;
    char *model; /* architecture and sizes, as erg_checkpoint_model() writes them */
    struct erg_checkpoint_piece *pieces;
    size_t count, capacity;
};

/* The name of a piece in its file. */
void erg_checkpoint_piece_name(char *text, size_t capacity,
                               const struct erg_checkpoint_piece *piece);

/* FOLDER/NAME, to be freed. */
char *erg_checkpoint_path(const char *folder, const char *name);

/* "step-00001000" of a run, the newest first, ending with NULL; or `leftovers` of killed runs. */
char **erg_checkpoint_steps(const char *run, bool leftovers);
void erg_checkpoint_free_steps(char **names);

#endif
