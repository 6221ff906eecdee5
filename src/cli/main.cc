#include <cstdio>

int main() {
  std::puts("masu " MASU_VERSION);
  return 0;
}
