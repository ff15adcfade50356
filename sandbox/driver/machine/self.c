/* Which process this is, and which others live, as the machine knows them: a container has process ids of its own. */
#include "self.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A real driver sits in the kernel and knows every process; this one looks at the machine's /proc, where that is mounted. */
const char *sim_proc(void)
{
    const char *directory = getenv("SIMGPU_PROC");
    return directory == NULL ? "/proc" : directory;
}

/* A /proc says who looks at it in the namespace that it was mounted for; 0 for a process that it does not know. */
static int32_t look_up(void)
{
    char path[4096], text[16];
    snprintf(path, sizeof path, "%s/self", sim_proc());
    ssize_t n = readlink(path, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return (int32_t)strtol(text, NULL, 10);
}

int32_t sim_self(void)
{
    static _Atomic uint64_t known; /* pid here, and pid there: a fork's child finds its parent's, and looks anew */
    uint32_t here = (uint32_t)getpid();
    uint64_t pair = atomic_load_explicit(&known, memory_order_relaxed);
    if (pair >> 32 != here) {
        pair = (uint64_t)here << 32 | (uint32_t)look_up();
        atomic_store_explicit(&known, pair, memory_order_relaxed);
    }
    return (int32_t)(uint32_t)pair;
}

uint64_t sim_birth_of(int32_t pid)
{
    char path[4096], text[1024];
    snprintf(path, sizeof path, "%s/%d/stat", sim_proc(), (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char state = 'X';
    unsigned long long birth = 0;
    const char *rest = strrchr(text, ')'); /* a program's name may hold spaces and brackets */
    if (rest == NULL ||
        sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &birth) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : birth;
}
