/* A driver that lacks nearly everything, and has two functions of its own.
 * SPDX-License-Identifier: Apache-2.0 */
int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuNewerThanAnyList(int number);
int cuTexRefSetMipmapLevelBias(void *texture, float bias);

int cuInit(unsigned int flags) { return (int)flags; }

int cuDriverGetVersion(int *version) {
  *version = 10000;
  return 0;
}

int cuNewerThanAnyList(int number) { return number + 1; }

/* A number in a floating-point register must come through. */
int cuTexRefSetMipmapLevelBias(void *texture, float bias) {
  (void)texture;
  return (int)(bias * 2);
}
