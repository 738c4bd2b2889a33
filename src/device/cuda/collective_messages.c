/*
 * Messages between two ranks by copies: the sender writes a number into the receiver's memory, and
 * the receiver's stream waits for it, copies, and writes the number back. Streams wait outside the
 * SMs, so neither waits nor copies take an SM from concurrent work.
 */
#include "device/cuda/collective_internal.h"
#include "device/cuda/cuda_internal.h"

#include <cuda.h>

#define NAME_(function) #function
#define NAME(function) NAME_(function)

int erg_message_library_open(struct erg_message_library *library, struct erg_error *err)
{
    static const struct erg_cuda_entry entries[] = {
        {NAME(cuStreamWaitValue32), offsetof(struct erg_message_library, wait)},
        {NAME(cuStreamWriteValue32), offsetof(struct erg_message_library, write)},
    };
    return erg_cuda_library_open("libcuda.so.1", library, entries, sizeof entries / sizeof *entries,
                                 err);
}

static int check(CUresult status, const char *what, struct erg_error *err)
{
    if (status == CUDA_SUCCESS)
        return 0;
    return erg_fail(err, ERG_FAILED, "%s: CUDA's driver returns %d", what, (int)status);
}

static CUdeviceptr word_of(const struct erg_collective *c, int rank, size_t word)
{
    return (CUdeviceptr)(uintptr_t)((uint32_t *)c->signals.peers[rank] + word);
}

static int check_messages(const struct erg_collective *c, struct erg_error *err)
{
    if (c->method == ERG_COLLECTIVE_PEER && c->count == 2)
        return 0;
    return erg_fail(
        err, ERG_FAILED,
        "a message in a group of %d, expected two ranks that can access each other's memory",
        c->count);
}

int erg_collective_send(struct erg_collective *c, struct CUstream_st *stream, struct erg_error *err)
{
    if (check_messages(c, err) != 0)
        return -1;
    const uint32_t number = ++c->sent;
    return check(c->messages.write(stream, word_of(c, !c->rank, ERG_SIGNAL_OFFERED), number,
                                   CU_STREAM_WRITE_VALUE_DEFAULT),
                 "offering a message", err) ||
                   check(c->messages.wait(stream, word_of(c, c->rank, ERG_SIGNAL_TAKEN), number,
                                          CU_STREAM_WAIT_VALUE_GEQ),
                         "waiting for a message to be taken", err)
               ? -1
               : 0;
}

int erg_collective_receive(struct erg_collective *c, const void *from, void *to, size_t bytes,
                           struct CUstream_st *stream, struct erg_error *err)
{
    if (check_messages(c, err) != 0)
        return -1;
    const uint32_t number = ++c->received;
    return check(c->messages.wait(stream, word_of(c, c->rank, ERG_SIGNAL_OFFERED), number,
                                  CU_STREAM_WAIT_VALUE_GEQ),
                 "waiting for a message", err) ||
                   erg_cuda_copy(to, from, bytes, stream, err) ||
                   check(c->messages.write(stream, word_of(c, !c->rank, ERG_SIGNAL_TAKEN), number,
                                           CU_STREAM_WRITE_VALUE_DEFAULT),
                         "confirming a message", err)
               ? -1
               : 0;
}

void erg_collective_end_messages(struct erg_collective *c)
{
    /*
     * Numbers are compared by their difference: this one is later than any that a stream waits for.
     */
    const uint32_t words[] = {ERG_SIGNAL_OFFERED, ERG_SIGNAL_TAKEN};
    const uint32_t after[] = {c->received + INT32_MAX / 2, c->sent + INT32_MAX / 2};
    struct CUstream_st *stream;
    struct erg_error ignored;
    if (check_messages(c, &ignored) || erg_cuda_stream_new(&stream, true, &ignored))
        return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        (void)c->messages.write(stream, word_of(c, c->rank, words[i]), after[i],
                                CU_STREAM_WRITE_VALUE_DEFAULT);
    (void)erg_cuda_stream_sync(stream, &ignored);
    erg_cuda_stream_free(stream);
}
