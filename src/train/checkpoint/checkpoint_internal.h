/* Internals of checkpoints: folders, manifests, and the pieces that ranks write and read. */
#ifndef ERG_TRAIN_CHECKPOINT_INTERNAL_H
#define ERG_TRAIN_CHECKPOINT_INTERNAL_H

#include "train/checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdatomic.h>

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
    char *data;  /* the source of samples (struct erg_checkpoint_state); NULL: not given */
    /* XXH3 of the document without its own key: the stored and the computed one. */
    uint64_t hash, found_hash;
    uint64_t config_hash; /* XXH3 of the config.json in the same folder */
    bool has_config_hash; /* older manifests have none */
    struct erg_checkpoint_piece *pieces;
    size_t count, capacity;
};

/* The name of a piece in its file. */
void erg_checkpoint_piece_name(char *text, size_t capacity,
                               const struct erg_checkpoint_piece *piece);

/* XXH3 of a manifest's keys and values except the hash itself, independent of white space. */
uint64_t erg_checkpoint_manifest_hash(const json_t *document);

/*
 * "step-00001000" of a run, newest first, ended by NULL; `leftovers`: folders left by killed runs
 * instead.
 */
char **erg_checkpoint_steps(const char *run, bool leftovers);
void erg_checkpoint_free_steps(char **names);

/* Removes a folder of files. */
void erg_checkpoint_remove(const char *folder);

/* World call: rank 0 creates an empty folder. */
int erg_checkpoint_make_folder(const char *folder, const struct erg_checkpoint_state *state,
                               struct erg_error *err);
/*
 * Writes this rank's share of the first `kinds` kinds. *pieces: the written ones, even after a
 * failure, for example if another thread has set *given_up, which may be NULL.
 */
int erg_checkpoint_write_share(const char *folder, const struct erg_checkpoint_state *state,
                               int kinds, const atomic_bool *given_up, json_t **pieces,
                               struct erg_error *err);
/* World call: writes the manifest if all shares were written; `result`: of this rank's share. */
int erg_checkpoint_write_manifest(const char *folder, const struct erg_job *job,
                                  const struct erg_checkpoint_place *place,
                                  const struct erg_checkpoint_state *state, json_t *pieces,
                                  int result, struct erg_error *err);

/*
 * World call: writes a checkpoint of the first `kinds` kinds into a folder, which rank 0 creates.
 */
int erg_checkpoint_write_folder(const char *folder, const struct erg_job *job,
                                const struct erg_checkpoint_place *place,
                                const struct erg_checkpoint_state *state, int kinds,
                                struct erg_error *err);
/* World call: PREFIX.tmp-NUMBER, the same on all ranks; free it, even after a failure. */
int erg_checkpoint_temporary(char **name, const char *prefix,
                             const struct erg_checkpoint_state *state, struct erg_error *err);

int erg_checkpoint_read_manifest(const char *folder, struct erg_checkpoint_manifest **manifest,
                                 struct erg_error *err);
/* Fills the first `kinds` kinds of a state from the pieces in a folder. */
int erg_checkpoint_read_pieces(const char *folder, const struct erg_checkpoint_manifest *manifest,
                               const struct erg_checkpoint_state *state, int kinds,
                               struct erg_error *err);

#endif
