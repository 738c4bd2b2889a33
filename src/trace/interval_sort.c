/* Sorts intervals in memory, and by merging runs of a file. */
#include "trace/interval_sort.h"

#include "base/memory.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = (12 << 20) / sizeof(struct erg_kernel_interval), READ_AHEAD = 256 };

/* A sorted part of the file that is being merged. */
struct run {
    uint64_t next, rest; /* position and rest of the run in the file, in intervals */
    struct erg_kernel_interval ahead[READ_AHEAD];
    size_t at, count;
};

struct erg_interval_sort {
    struct erg_kernel_interval *held;
    size_t count, capacity, most, at;
    int file;
    uint64_t written;
    struct {
        uint64_t *items; /* the end of each run */
        size_t count, capacity;
    } ends;
    struct run *runs; /* after the first take */
    size_t *order;    /* a heap of runs by their next interval */
    size_t run_count; /* runs with intervals left */
    bool taking;
};

struct erg_interval_sort *erg_interval_sort_new(size_t most)
{
    struct erg_interval_sort *sort = erg_xcalloc(1, sizeof *sort);
    sort->most = most ? most : MOST;
    sort->file = -1;
    return sort;
}

void erg_interval_sort_free(struct erg_interval_sort *sort)
{
    if (!sort)
        return;
    if (sort->file >= 0)
        close(sort->file);
    free(sort->held);
    free(sort->ends.items);
    free(sort->runs);
    free(sort->order);
    free(sort);
}

static int fail(const char *what, struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED, "%s the temporary file of kernels in $TMPDIR or /tmp: %s",
                    what, strerror(errno));
}

static int open_file(struct erg_interval_sort *sort, struct erg_error *err)
{
    const char *folder = getenv("TMPDIR");
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/ergon-kernels-XXXXXX", folder && *folder ? folder : "/tmp");
    sort->file = mkstemp(path.data);
    if (sort->file >= 0)
        unlink(path.data);
    erg_text_release(&path);
    return sort->file >= 0 ? 0 : fail("making", err);
}

static int spill(struct erg_interval_sort *sort, struct erg_error *err)
{
    const char *bytes = (const char *)sort->held;
    size_t rest = sort->count * sizeof *sort->held;
    if (sort->file < 0 && open_file(sort, err) != 0)
        return -1;
    qsort(sort->held, sort->count, sizeof *sort->held, erg_kernel_interval_compare);
    while (rest) {
        ssize_t put = write(sort->file, bytes, rest);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail("writing", err);
        bytes += put;
        rest -= (size_t)put;
    }
    sort->written += sort->count;
    sort->count = 0;
    ERG_PUSH(&sort->ends, items, sort->written);
    return 0;
}

int erg_interval_sort_put(struct erg_interval_sort *sort,
                          const struct erg_kernel_interval *interval, struct erg_error *err)
{
    if (sort->count == sort->most && spill(sort, err) != 0)
        return -1;
    assert(!sort->taking && sort->count < sort->most);
    ERG_PUSH(sort, held, *interval);
    return 0;
}

/* ---- merging ---- */

static int fill(const struct erg_interval_sort *sort, struct run *run, struct erg_error *err)
{
    size_t count = run->rest < READ_AHEAD ? (size_t)run->rest : READ_AHEAD;
    size_t bytes = count * sizeof *run->ahead, done = 0;
    while (done < bytes) {
        ssize_t got = pread(sort->file, (char *)run->ahead + done, bytes - done,
                            (off_t)(run->next * sizeof *run->ahead + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail("reading", err);
        done += (size_t)got;
    }
    run->next += count;
    run->rest -= count;
    run->count = count;
    run->at = 0;
    return 0;
}

/* Sifts the run at `i` down the heap. */
static void sink(struct erg_interval_sort *sort, size_t i)
{
    size_t *order = sort->order;
    for (;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < sort->run_count; child++) {
            const struct run *a = &sort->runs[order[child]], *b = &sort->runs[order[least]];
            if (a->ahead[a->at].start_ns < b->ahead[b->at].start_ns)
                least = child;
        }
        if (least == i)
            return;
        size_t other = order[i];
        order[i] = order[least];
        order[least] = other;
        i = least;
    }
}

static int begin(struct erg_interval_sort *sort, struct erg_error *err)
{
    sort->taking = true;
    if (sort->ends.count == 0) {
        if (sort->count)
            qsort(sort->held, sort->count, sizeof *sort->held, erg_kernel_interval_compare);
        return 0;
    }
    if (sort->count && spill(sort, err) != 0)
        return -1;
    free(sort->held);
    sort->held = NULL;
    sort->run_count = sort->ends.count;
    sort->order = erg_xcalloc(sort->run_count, sizeof *sort->order);
    sort->runs = erg_xcalloc(sort->run_count, sizeof *sort->runs);
    for (size_t i = 0; i < sort->run_count; i++) {
        sort->runs[i].next = i ? sort->ends.items[i - 1] : 0;
        assert(sort->runs[i].next < sort->ends.items[i]);
        sort->runs[i].rest = sort->ends.items[i] - sort->runs[i].next;
        if (fill(sort, &sort->runs[i], err) != 0)
            return -1;
    }
    for (size_t i = 0; i < sort->run_count; i++)
        sort->order[i] = i;
    for (size_t i = sort->run_count; i-- > 0;)
        sink(sort, i);
    return 0;
}

int erg_interval_sort_take(struct erg_interval_sort *sort, struct erg_kernel_interval *interval,
                           struct erg_error *err)
{
    if (!sort->taking && begin(sort, err) != 0)
        return -1;
    if (!sort->runs) {
        if (sort->at == sort->count)
            return 0;
        assert(sort->held);
        *interval = sort->held[sort->at++];
        return 1;
    }
    if (sort->run_count == 0)
        return 0;
    struct run *run = &sort->runs[sort->order[0]];
    assert(run->at < run->count);
    *interval = run->ahead[run->at++];
    if (run->at == run->count) {
        if (run->rest && fill(sort, run, err) != 0)
            return -1;
        if (run->at == run->count)
            sort->order[0] = sort->order[--sort->run_count];
    }
    sink(sort, 0);
    return 1;
}
