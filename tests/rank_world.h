/* Ranks that are processes of a test: a job of several ranks on this machine's loopback address. */
#ifndef TESTS_RANK_WORLD_H
#define TESTS_RANK_WORLD_H

#include "check.h"

#include "base/memory.h"
#include "launch/rendezvous.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void rank_function(const struct erg_launch_environment *env,
                           struct erg_rendezvous *rendezvous);

/* A socket that listens at a free port of the loopback address. */
static inline int listen_anywhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 3);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Runs the function in `world` processes; every one must end without a failed assertion. */
static inline void run_ranks(int world, rank_function *function)
{
    int port, listener = listen_anywhere(&port);
    pid_t *children = erg_xcalloc((size_t)world, sizeof *children);
    for (int rank = 0; rank < world; rank++) {
        struct erg_launch_environment env = {.rank = rank,
                                             .world = world,
                                             .local_rank = rank,
                                             .host = "127.0.0.1",
                                             .port = port,
                                             .job = "test",
                                             .secret = "test",
                                             .listener = rank ? 0 : listener};
        fflush(NULL);
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            struct erg_rendezvous *rendezvous;
            struct erg_error err;
            setenv("CMOCKA_TEST_ABORT", "1", 1); /* no other test goes on in here */
            if (rank)
                close(listener);
            assert_ok(erg_rendezvous_open(&rendezvous, &env, 60, &err), &err);
            function(&env, rendezvous);
            erg_rendezvous_close(rendezvous);
            fflush(NULL);
            _exit(0);
        }
    }
    close(listener);
    int failed = -1;
    for (int rank = 0; rank < world; rank++) {
        int status;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        if (status != 0)
            failed = rank;
    }
    free(children);
    if (failed >= 0)
        fail_msg("rank %d of %d failed", failed, world);
}

#endif
