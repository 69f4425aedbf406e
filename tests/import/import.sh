# import.sh: what the tests of penstock-import share: the program, a Python with torch and transformers, the modules of this folder and a token file.
# Sourced after lib.sh; goes to $scratch.
program=$top_builddir/penstock-import
test -x "$program" || skip_all "penstock-import is not built"
OMP_NUM_THREADS=1 # more are slower for models as small as these
export OMP_NUM_THREADS
find_python 'import importlib.util as u; u.find_spec("torch").name + u.find_spec("transformers").name' /opt/peer/bin/peer-python python3 || skip_all "no Python with torch and transformers here: set PEER"
program=$(cd "$top_builddir" && pwd)/penstock-import
cases=$(cd "$top_srcdir/tests/import" && pwd)
make_tokens "$scratch/data.bin" 4000
cd "$scratch" || exit 1
status() { cat "$1.status"; }
