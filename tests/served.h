/* What tests of ergon serve share: a server that runs, and connections to it. */
#ifndef ERGON_TESTS_SERVED_H
#define ERGON_TESTS_SERVED_H

#include "commands.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

struct server {
    pid_t pid;
    int port;
};

/* With these options, which end with NULL. */
static inline struct server start_serving(const char *const *options)
{
    int ends[2];
    const char *arguments[16] = {"ergon", "serve"};
    for (size_t i = 0; options[i]; i++)
        arguments[2 + i] = options[i];
    assert_int_equal(pipe(ends), 0);
    struct server server = {.pid = fork()};
    if (server.pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv(ERGON_TEST_PROGRAM, (char *const *)(uintptr_t)arguments);
        _exit(99);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    assert_int_equal(fscanf(out, "http://%*[^:]:%d", &server.port), 1);
    fclose(out);
    return server;
}

/* Ends it as a service manager would; it must end well. */
static inline void stop_serving(struct server *server)
{
    int status;
    kill(server->pid, SIGTERM);
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static inline int connect_to(const struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(connection, (struct sockaddr *)&address, sizeof address), 0);
    return connection;
}

#endif
