/* python.exe: the interpreter itself is in the DLL. */
__declspec(dllimport) int Py_Main(int, unsigned short **);

int wmain(int count, unsigned short **words)
{
    return Py_Main(count, words);
}
