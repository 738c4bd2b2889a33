/* A thread that works concurrently with its owner (train/engine/reader.h). */
#include "train/engine/reader.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdlib.h>

struct erg_reader {
    void (*work)(void *context);
    void *context;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun; /* work is running */
    bool closing;
};

static void *run(void *argument)
{
    struct erg_reader *reader = argument;
    pthread_mutex_lock(&reader->lock);
    while (!reader->closing || reader->begun) {
        if (!reader->begun) {
            pthread_cond_wait(&reader->changed, &reader->lock);
            continue;
        }
        pthread_mutex_unlock(&reader->lock);
        reader->work(reader->context);
        pthread_mutex_lock(&reader->lock);
        reader->begun = false;
        pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

struct erg_reader *erg_reader_open(void (*work)(void *context), void *context)
{
    struct erg_reader *reader = erg_xcalloc(1, sizeof *reader);
    reader->work = work;
    reader->context = context;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    reader->threaded = erg_thread_start(&reader->thread, run, reader) == 0;
    return reader;
}

void erg_reader_close(struct erg_reader *reader)
{
    if (!reader)
        return;
    pthread_mutex_lock(&reader->lock);
    reader->closing = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    if (reader->threaded)
        pthread_join(reader->thread, NULL);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

void erg_reader_begin(struct erg_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    reader->begun = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

double erg_reader_wait(struct erg_reader *reader)
{
    int64_t start_ns = erg_now_ns();
    pthread_mutex_lock(&reader->lock);
    bool begun = reader->begun;
    if (begun && !reader->threaded) {
        reader->work(reader->context);
        reader->begun = false;
    }
    while (reader->begun)
        pthread_cond_wait(&reader->changed, &reader->lock);
    pthread_mutex_unlock(&reader->lock);
    return begun ? 1e-9 * (double)(erg_now_ns() - start_ns) : 0;
}
