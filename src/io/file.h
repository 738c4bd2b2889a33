/*
 * Files: reading whole files, writing them so that a reader never sees half of one, and finding
 * the project's data (GPU, stack and model descriptions).
 *
 * Every failure is one sentence with the path in it.
 */
#ifndef ERG_IO_FILE_H
#define ERG_IO_FILE_H

#include "base/memory.h"
#include "base/text.h"
#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

/* A limit for files that people write by hand (jobs, models, catalogue entries). */
enum { ERG_FILE_SMALL_BYTES = 16 << 20 };

/* The size limit for files of unknown length: pipes and devices, some of which never end. */
enum { ERG_FILE_UNSIZED_BYTES = 256 << 20 };

/*
 * The whole of a file into *text (NUL-terminated, to be freed by the caller) and its size into
 * *length (may be NULL). A file of more than `limit_bytes` is refused; 0 means no limit
 * but its own size. Pipes and devices below /dev and /proc can be read too.
 */
int erg_file_read(const char *path, size_t limit_bytes, char **text, size_t *length,
                  struct erg_error *err);

/* Fails for a FIFO that has a name: opening it waits for a writer, perhaps for ever. */
int erg_file_refuse_fifo(const char *path, struct erg_error *err);

/*
 * Writes a file in one step: into a temporary name in the same folder, synced, renamed. After a
 * failure (full disk, read-only folder, …) the old file is unchanged and no temporary file remains.
 * Temporary files of killed runs are removed. A symbolic link keeps its target; devices and pipes
 * are written directly.
 */
int erg_file_write(const char *path, const void *bytes, size_t count, struct erg_error *err);

/*
 * The same for content that is too long for memory: begin, append any number of times, then commit,
 * which gives the file its name, or abandon, which keeps the former file. After a failure of begin
 * or commit nothing is left to abandon.
 */
struct erg_file_writer {
    const char *path;         /* borrowed */
    char *target, *temporary; /* private, like the rest */
    int file;
    uint64_t count;
};
int erg_file_begin(struct erg_file_writer *writer, const char *path, struct erg_error *err);
int erg_file_append(struct erg_file_writer *writer, const void *bytes, size_t count,
                    struct erg_error *err);
int erg_file_commit(struct erg_file_writer *writer, struct erg_error *err);
void erg_file_abandon(struct erg_file_writer *writer);

/* Writes as much of a text as possible to an open file, and removes the written part from the text:
 * 0, or -1 with errno where a part is left. For logs, which go on while a disk is full. */
int erg_file_write_some(int file, struct erg_text *text);

/* FOLDER/NAME, to be freed. */
char *erg_file_path(const char *folder, const char *name);

/* Makes a folder and its missing parents; one that exists is fine. */
int erg_dir_make(const char *path, struct erg_error *err);

/*
 * Fails if the folder has one of these files; `names` ends with NULL. `rest` ends the sentence:
 * "writing 'FOLDER/NAME': this file is there already, REST".
 */
int erg_dir_refuse_files(const char *folder, const char *const *names, const char *rest,
                         struct erg_error *err);

/*
 * Data files live in DATA/kind/, where DATA is each of: $ERGON_DATA, share/ergon of the tree in
 * which the executable lies, or else the library, in bin/, lib/ or a folder of lib/, and the data
 * folder of the source tree the library was built from.
 *
 * The path of the entry `name` of a kind ("gpus", "stacks", "models"), to be freed by the caller,
 * or NULL. Upper and lower case do not matter, nor does a missing ".yaml" or ".json"; an entry may
 * be a folder. The first data folder that has it wins.
 */
char *erg_data_find(const char *kind, const char *name);

/* The names of all entries of a kind, sorted, without suffix, ending with NULL (for messages). */
const char *const *erg_data_names(const char *kind, struct erg_arena *arena);

#endif
