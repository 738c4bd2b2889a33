/* Shared by the doors of api/: words of options, texts that live as long as an answer. */
#ifndef ERG_API_DOOR_H
#define ERG_API_DOOR_H

#include "base/given.h"
#include "base/memory.h"
#include "ergon/ask.h"
#include "ergon/error.h"

#include <jansson.h>
#include <stdint.h>

/* The words of ERG_WORDS_DEVICE. */
enum { ERG_DOOR_EMULATED, ERG_DOOR_CUDA };

/* The index of a word in a list; NULL: -1. ERG_USAGE lists its words. */
int erg_door_choice(int *index, const char *option, const char *word, enum erg_word_list list,
                    struct erg_error *err);

/* An integer option: 0 means not given, else from 1 to `most`. */
int erg_door_number(long *number, const char *option, int64_t given, long most,
                    struct erg_error *err);
/* Likewise; not given is NAN. */
int erg_door_amount(double *amount, const char *option, double given, struct erg_error *err);

/* A text in an arena; NULL: NULL. */
const char *erg_door_copy(struct erg_arena *arena, const char *text);

/* The text of a document, which is released. To be freed. */
char *erg_door_json(json_t *document);

#endif
