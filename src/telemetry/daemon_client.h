/*
 * A client of the daemon of clocks and power limits (daemon/daemon.h, telemetry/daemon_wire.h).
 *
 * A connection belongs to the process that opened it. Calls may come from any thread, and wait for
 * their turn. They fail with ERG_NO_DEVICE when the daemon refuses, in its words, and when it has
 * ended or does not answer for 10 s; then the connection is of no use any more.
 */
#ifndef ERG_TELEMETRY_DAEMON_CLIENT_H
#define ERG_TELEMETRY_DAEMON_CLIENT_H

#include "telemetry/daemon_wire.h"

struct erg_daemon_client;

/* Fails also where the socket is not root's or this user's own. */
int erg_daemon_connect(struct erg_daemon_client **client, const char *path,
                       struct erg_wire_hello *hello, struct erg_error *err);
/* The same of a socket that is connected and becomes the client's, also where this fails. */
int erg_daemon_speak(struct erg_daemon_client **client, int socket, struct erg_wire_hello *hello,
                     struct erg_error *err);
void erg_daemon_disconnect(struct erg_daemon_client *client);

/*
 * Sends a request, whose sequence it sets, and waits for its answer. `body` (may be NULL) is left
 * at the body of the answer, which stays until the next call: only for clients of one thread.
 */
int erg_daemon_exchange(struct erg_daemon_client *client, struct erg_wire_request *request,
                        struct erg_wire_reader *body, struct erg_error *err);

/* The status of the latest answer: only for clients of one thread. */
enum erg_wire_status erg_daemon_said(const struct erg_daemon_client *client);

/* The GPUs and this process's rights to them. */
int erg_daemon_ask_gpu(struct erg_daemon_client *client, uint32_t index, struct erg_wire_gpu *gpu,
                       struct erg_error *err);

/* A lease of a knob. It ends when the daemon hears nothing of this client for `ttl_ms`. */
int erg_daemon_take_lease(struct erg_daemon_client *client, uint32_t index, enum erg_knob knob,
                          uint64_t *lease, uint32_t *ttl_ms, struct erg_error *err);

/* CLOCK or POWER under a lease, and when the driver was asked; all 0 of a change that is still
 * pending because it was not to be waited for. */
int erg_daemon_change(struct erg_daemon_client *client, struct erg_wire_request *request,
                      struct erg_wire_change *change, struct erg_error *err);

/* Why a lease has ended before it was released, or NULL: valid until the next call. Waits for
 * nothing. `lease` is set to its number. */
const char *erg_daemon_ended_lease(struct erg_daemon_client *client, uint64_t *lease);

#endif
