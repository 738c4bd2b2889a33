/* The daemon as a program runs it, with a second socket for clients of zeusd. */
#include "serve/daemon_serve.h"

#include "daemon/daemon.h"
#include "serve/zeusd.h"

int erg_daemon_serve(const struct erg_daemon_wish *wish, struct erg_error *err)
{
    struct erg_daemon_options daemon = {
        .config = wish->config, .folder = wish->folder, .socket = wish->socket, .proc = "/proc"};
    struct erg_zeusd *zeusd = NULL;
    if (wish->restore)
        return erg_daemon_restore(&daemon, err);
    if (wish->zeusd) {
        if (erg_zeusd_new(&zeusd, wish->zeusd, &daemon.guests, err) != 0)
            return -1;
        daemon.opened = erg_zeusd_listen;
        daemon.context = zeusd;
    }
    const int result = erg_daemon_run(&daemon, err);
    erg_zeusd_free(zeusd);
    return result;
}
