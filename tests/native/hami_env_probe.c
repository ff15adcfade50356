/* Prints what the interceptor reads from HAMi-core's environment, a line a thing; with an argument, makes a page there. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "hami_env.h"

extern char **environ;

int main(int argc, char **argv) {
  if (argc > 1) {
    int error = aq_hami_create_usage(argv[1]);
    struct stat page;
    printf("error %s\n", error ? strerror(error) : "none");
    if (!stat(argv[1], &page)) printf("inode %lu\n", (unsigned long)page.st_ino);
    return 0;
  }
  static aq_hami_env env;
  aq_hami_read(environ, &env);
  printf("present %d\ndisabled %d\npath %s\nproblem %s\n", env.present, env.disabled, env.usage_path, env.problem);
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    if (env.memory_limit[card]) printf("memory%d %llu\n", card, (unsigned long long)env.memory_limit[card]);
    if (env.core_percent[card]) printf("core%d %u\n", card, env.core_percent[card]);
  }
  return 0;
}
