/* What tests of ergon serve share: a server that runs, and connections to it. */
#ifndef ERGON_TESTS_SERVED_H
#define ERGON_TESTS_SERVED_H

#include "commands.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

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

/* The whole answer to one request; one that has a body, as POST, sends "abc". */
static inline struct erg_text ask(const struct server *server, const char *request)
{
    const int connection = connect_to(server);
    struct erg_text message = {0}, answer = {0};
    erg_text_printf(&message, "%s\r\nHost: localhost\r\nConnection: close\r\n", request);
    const bool body = strncmp(request, "P", 1) == 0;
    erg_text_add(&message, body ? "Content-Length: 3\r\n\r\nabc" : "\r\n");
    assert_int_equal(send(connection, message.data, message.count, 0), message.count);
    char block[4096];
    ssize_t count;
    erg_text_add(&answer, "");
    while ((count = recv(connection, block, sizeof block, 0)) > 0)
        erg_text_add_bytes(&answer, block, (size_t)count);
    close(connection);
    erg_text_release(&message);
    return answer;
}

static inline void check_answer(const struct server *server, const char *request,
                                const char *status, const char *part)
{
    struct erg_text answer = ask(server, request);
    if (strncmp(answer.data, status, strlen(status)) != 0 || !strstr(answer.data, part))
        fail_msg("%s: expected %s with \"%s\" in:\n%s", request, status, part, answer.data);
    erg_text_release(&answer);
}

/* The server closes these connections within a minute, though every second one goes on with the
 * headers of its request. */
static inline void check_closed(const int *connections, int count)
{
    char byte;
    int open = count;
    for (int tries = 0; open && tries < 600; tries++) {
        open = 0;
        for (int i = 0; i < count; i++)
            if (send(connections[i], "X: y\r\n", i % 2 ? 6 : 0, MSG_NOSIGNAL) >= 0)
                open += recv(connections[i], &byte, 1, MSG_DONTWAIT) != 0;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    assert_int_equal(open, 0);
    for (int i = 0; i < count; i++)
        close(connections[i]);
}

#endif
