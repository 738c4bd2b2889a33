/*
 * Begins and finishes checkpoints: writes shares in the background, and gives the complete folder
 * its name.
 */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the folder's name ---- */

static void sync_folder(const char *folder)
{
    int handle = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0)
        return;
    fsync(handle);
    close(handle);
}

/*
 * Removes all except the latest one and `keep` - 1 before it. Renames each first, so that none is
 * ever incomplete. Checkpoints of later steps belong to an abandoned course: the run continued from
 * an older one.
 */
static void remove_old(const char *run, const char *newest, int keep)
{
    char **names = erg_checkpoint_steps(run, false), **leftovers = erg_checkpoint_steps(run, true);
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], newest) <= 0 && keep-- > 0)
            continue;
        char *folder = erg_file_path(run, names[i]);
        struct erg_text old = {0};
        erg_text_printf(&old, "%s.tmp-old", folder);
        if (rename(folder, old.data) == 0)
            erg_checkpoint_remove(old.data);
        erg_text_release(&old);
        free(folder);
    }
    for (char **name = leftovers; *name; name++) {
        char *folder = erg_file_path(run, *name);
        erg_checkpoint_remove(folder);
        free(folder);
    }
    erg_checkpoint_free_steps(names);
    erg_checkpoint_free_steps(leftovers);
}

/* Replaces the link `latest` in one step. */
static int point_latest(const char *run, const char *name, struct erg_error *err)
{
    char *link = erg_file_path(run, "latest"), *temporary = erg_file_path(run, "latest.tmp");
    unlink(temporary);
    int result = symlink(name, temporary) != 0 || rename(temporary, link) != 0 ? -1 : 0;
    if (result != 0)
        erg_fail(err, ERG_FAILED, "writing '%s': %s", link, strerror(errno));
    free(temporary);
    free(link);
    return result;
}

/* Gives the folder its name, and makes it the newest. */
static int commit(const struct erg_checkpoint_state *state, const char *run, const char *name,
                  const char *temporary, int keep, struct erg_error *err)
{
    if (state->may_commit && state->may_commit(state->commit_context, err) != 0)
        return -1;
    char *folder = erg_file_path(run, name);
    int result = 0;
    struct erg_text old = {0};
    sync_folder(temporary);
    erg_text_printf(&old, "%s.tmp-old", folder);
    erg_checkpoint_remove(old.data);
    /*
     * A checkpoint of this step exists if it was damaged, or if the run continued from it without a
     * step.
     */
    bool replaces = rename(folder, old.data) == 0;
    if (rename(temporary, folder) != 0)
        result = erg_fail(err, ERG_FAILED, "writing '%s': %s", folder, strerror(errno));
    if (result != 0 && replaces)
        (void)rename(old.data, folder);
    erg_text_release(&old);
    free(folder);
    if (result != 0)
        return -1;
    sync_folder(run);
    struct erg_error of_link;
    if (point_latest(run, name, &of_link) != 0)
        erg_log(ERG_LOG_WARNING, "%s; the checkpoint itself is complete", of_link.message);
    remove_old(run, name, keep);
    return 0;
}

/* ---- writers ---- */

struct erg_checkpoint_writer {
    const struct erg_job *job;
    struct erg_checkpoint_place place;
    struct erg_checkpoint_state state;
    int keep;
    char *run, *temporary;
    char name[32];
    pthread_t thread;
    bool threaded; /* the thread must be joined */
    atomic_bool written, given_up;
    /* The result of this rank's share; owned by the writing thread until `written` is set. */
    json_t *pieces;
    int result;
    struct erg_error err;
};

static void *write_share(void *argument)
{
    struct erg_checkpoint_writer *writer = argument;
    writer->result =
        erg_checkpoint_write_share(writer->temporary, &writer->state, ERG_CHECKPOINT_KINDS,
                                   &writer->given_up, &writer->pieces, &writer->err);
    atomic_store(&writer->written, true);
    return NULL;
}

static void free_writer(struct erg_checkpoint_writer *writer)
{
    if (writer->threaded)
        pthread_join(writer->thread, NULL);
    json_decref(writer->pieces);
    free(writer->temporary);
    free(writer->run);
    free(writer);
}

int erg_checkpoint_begin(struct erg_checkpoint_writer **out, const char *run,
                         const struct erg_job *job, const struct erg_checkpoint_place *place,
                         const struct erg_checkpoint_state *state, int keep, struct erg_error *err)
{
    struct erg_checkpoint_writer *writer = erg_xcalloc(1, sizeof *writer);
    *writer = (struct erg_checkpoint_writer){
        .job = job, .place = *place, .state = *state, .keep = keep, .run = erg_xstrdup(run)};
    snprintf(writer->name, sizeof writer->name, "step-%08" PRIu64, place->step);
    char *folder = erg_file_path(run, writer->name);
    int result = erg_checkpoint_temporary(&writer->temporary, folder, state, err) ||
                         erg_checkpoint_make_folder(writer->temporary, state, err)
                     ? -1
                     : 0;
    free(folder);
    if (result != 0) {
        free_writer(writer);
        return -1;
    }
    *out = writer;
    writer->threaded = erg_thread_start(&writer->thread, write_share, writer) == 0;
    if (!writer->threaded)
        write_share(writer);
    return 0;
}

bool erg_checkpoint_written(const struct erg_checkpoint_writer *writer)
{
    return atomic_load(&writer->written);
}

int erg_checkpoint_finish(struct erg_checkpoint_writer *writer, struct erg_error *err)
{
    if (writer->threaded)
        pthread_join(writer->thread, NULL);
    writer->threaded = false;
    if (writer->result != 0)
        *err = writer->err;
    int result = erg_checkpoint_write_manifest(writer->temporary, writer->job, &writer->place,
                                               &writer->state, writer->pieces, writer->result, err);
    if (result == 0 && writer->state.rank == 0)
        result =
            commit(&writer->state, writer->run, writer->name, writer->temporary, writer->keep, err);
    if (result != 0 && writer->state.rank == 0)
        erg_checkpoint_remove(writer->temporary);
    result = erg_rendezvous_agree(writer->state.rendezvous, result, err);
    free_writer(writer);
    return result;
}

void erg_checkpoint_give_up(struct erg_checkpoint_writer *writer)
{
    if (!writer)
        return;
    atomic_store(&writer->given_up, true);
    free_writer(writer);
}
