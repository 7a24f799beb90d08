use warpwright_jail::*;
#[test]
fn smoke() {
    for b in Backend::ALL {
        let jail = Jail::with_backend(b);
        println!("{b:?} {jail:#?}");
        let Ok(jail) = jail else { continue };
        let f = jail.run(Spec::new("bash").arg("-c").arg("id; ls -la / /dev $HOME $TMPDIR; env").with_system().with_python(std::path::Path::new("/usr/bin/python3")));
        match f { Ok(f) => println!("{:?} {} {:?}\n{}\n{}", f.outcome, f.memory_bound, f.elapsed, f.stdout.text(), f.stderr.text()), Err(e) => println!("{e}") }
    }
}
