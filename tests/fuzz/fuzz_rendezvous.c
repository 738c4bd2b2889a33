/*
 * What a member says after the proof: the first byte chooses rank 0 or another one, the rest comes
 * over the wire, and is taken by one round of the keeper.
 */
#include "launch/rendezvous_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_member members[3] = {{.link.fd = -1}, {.link.fd = -1}, {.link.fd = -1}};
    int ends[2];
    if (size < 1 || size > 100000 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 0;
    int rank = data[0] & 1, member = rank == 0 ? 1 : 0;
    struct erg_rendezvous r = {.rank = rank,
                               .world = 3,
                               .members = members,
                               .member_count = rank == 0 ? 3 : 1,
                               .wake = eventfd(0, EFD_NONBLOCK),
                               .closing = true,
                               .waiting = rank != 0,
                               .deadline_ns = INT64_MAX};
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    erg_link_init(&members[member].link, ends[0]);
    members[member].link.most = ERG_RENDEZVOUS_MOST_BYTES;
    if (send(ends[1], data + 1, size - 1, MSG_DONTWAIT) >= 0)
        erg_rendezvous_keep(&r);
    if (r.failed && !memchr(r.failure.message, '\0', sizeof r.failure.message))
        abort();
    for (int i = 0; i < r.member_count; i++) {
        erg_link_release(&members[i].link);
        erg_text_release(&members[i].bytes);
    }
    close(ends[1]);
    close(r.wake);
    erg_text_release(&r.result);
    pthread_mutex_destroy(&r.lock);
    pthread_cond_destroy(&r.changed);
    return 0;
}
