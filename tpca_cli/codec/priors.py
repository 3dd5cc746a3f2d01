"""Numbers that every coder starts from, fitted once to photographs of many kinds and sizes.

They make small archives small: nothing of this is stored in a file. They are part of the format: changing one
number changes what every existing block means, so they are frozen with it.

| name | meaning |
|---|---|
| WEIGHTS | (kind, phase, slot) how much a magnitude in a slot counts; the last is the prior; 1/1024 |
| EXPECTED | prior magnitude (1/1024) by scale code minus step code, from -EXPECTED_ZERO, in eighth octaves |
| TABLES, FLAG_TABLES | (class, token) frequencies of 2^16 |
| FLAG_WEIGHTS | (kind, feature) how much a feature counts for a zone flag; 1/1024 |
| OFFSETS | (class, magnitude 0..3) by how much reconstruction moves toward zero; 1/256 of a step |
| POSITION | (smaller, larger of i and j, color, phase) factor of the expected magnitude; 1/64 |
| ADJUST | correction of the expected magnitude by its distance from the prior; 1/64 octave |
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

EXPECTED_ZERO = 80

_SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("WEIGHTS", (6, 2, 38)),
    ("EXPECTED", (256,)),
    ("TABLES", (48, 16)),
    ("FLAG_TABLES", (112, 2)),
    ("FLAG_WEIGHTS", (16, 5)),
    ("OFFSETS", (112, 4)),
    ("POSITION", (8, 8, 2, 2)),
    ("ADJUST", (97,)),
)

_PACKED = (
    "c-rk)X;c(f7QVG~^}axZO|#g54ISEM?WSo!wgyE(5tSH?3a)5rTt+>PW*o&O;z?XaFp9=egQG_s$K50XF`%P@O9U|}f{2PJf=dvU"
    "tzoJGwThECnsI*2q`!Aw)&1VPbzj|A)wjOW*hG>Xf?*g?jnquUIsl}`v&-r@W?`))IgK(9Oo83huqjJH%}v#yl%;;@)nnDE%`?AL"
    "CIBbU(T21ZV^}W?lUS2L`O7g36?aCQoxN!M9BCAw9ulchF5;meA^_Y85gWh?pfeWS%@0K&=0kvi(TQZVOUD`jq$;w@>hO}}W+t*g"
    ";{xE|+1IEM;8X}6z!0$;fg+TFbmb6BlB`!b9)6W$ZkMH_;spb?mn8LFUKJV<WpOF8Ktm;g@hIyE<pq#&HFMk~CwqWEV3QgphEaj7"
    "fwYsEHwQ!E8?zJ4-amPGxPuS{7r^7~_<S+&_y7?oi{OJ52Z5~}Uf(Y90!O(T#la0BlN2v=42tWtkZ(J@Rt^5x-bTQpX4nDqIG_SR"
    "MZjJOgir`#A)w1UypVSViefA_PiQT3a`z679-h2l?e5c6MDK)@gH=6~c0Dz&e-O1(w49%5yg}B?iy(7~|FCi6#=S1ly0{Fxq5@*g"
    "lr28qU#AJ2iUP(ZMk?h&nKScpR`mCq6IrozzF^&i>eOu36PfGTi=uhlO7E!En;jln=Z;zFpbaQ>TaqpDPo92w06I@G^}_W@=~!*("
    "PZ>uG+=;6T_xMan8z}ro)6j86$_)FD>vx{a9N?onRu!{6GHvV>GC!T2s?04cUaJxdqf@rQYfM<lVWcN2<DzsPx=To<{F+yA1q}b^"
    "<q8C&@z_mb#=Lr~5@*r)23I|czQ7hgR}7&I9CCMHtRFw8H$mrRO)@T>pAfp?bY4}W;nN4))4e$u?FP$B0yy;f+-f5up)UlnBD%kG"
    "QnHACLnU9#v*pkRJk-l&Y})+Fj3YMm8@MX1luKywUL19F5@D|c%)CSfOK7|V3Up5RD~^7&aOW6%*6RQhg8#nAm5;vKGKXi)`!o{#"
    "6+gB(ST<0`#?j7)hDIMex_@FXK8|;;flpN63wP**JgjpK^bjYv4jbemA_$ZkL0Rjv&jlV^;cv&|5G*PN!JfdD7gUb+uod#TC=2Cg"
    "u$O1~r*2G8$wdM-3zJIi-S20mIV|nx+0#bIB^>(JG*^VqsBBz3*t1s;E55sIXxzxM>4BM5pN|Ytx!I70ob}_wFCE<e=O_E7#rV3X"
    "U2?|vtV#Dun7hIL@F%0ftG;U6FoV>NnC5b`abWq*Kjznc`KK+mYs(isQ{Qt<?Romz{G)+$*Qaef)O=xj(6EczrXTZ~OtyK7tEQdu"
    "#fuL(_Rjj|q(~Z*Wjy&;w0|>hSeXv@r%Q;$`G31Yo>@F<R&Yb#WwWR4b?uQi3ob3qTzEJBAV5wOz=+-TqIEOZe{x{RQ(>uUbMgn*"
    "obC)h#C;KaZ0@RvA4*jxjPVCo%}va#k@d?e_OyCjswz=W-qax2^U<{rQWvx%(udi7e->Zz{jUGm?W^Wy^_#tB)K0guQdMH+m>qYV"
    "?#VYNkKY<lpepq#bSoQl#H~zw(XA{hr*F3Q;?VsmDP?Yz&gzmAM(an(o6$D34c;3>=x9BO4u@2dNOGa9Yfwb;eVz3r2ZsS9V$0K$"
    "$SJ5H5$sca49p}JNLb$)^(eZMlML7ry<U!t=Z@qf8{G9A_#Cfd!=Y0T;aZ~!t~4}3F?BAeZH3FvO;A_@P+Zpl=kK+_`TK29SostR"
    "?=(Zvt!5~^(E?>9%}{o`1uCxB!_BgKxO2T0YHl?`-Syk>xa0vmEq?-yS1O>T>;{-_-iG$7%YfG00KBdo@P-FeuLkTz4PY&g0Wmc|"
    "yQvY{TN}Yd^)^#0m|B{tF>^OTds{o8?d{YT$wXE7HfTo?vqhcT;dhR33X8^!jL}AT>$E}o5PyTlTWjz!=ndXJ+5okuc|JZiGNNB}"
    "RFp9+C^#ZABqY)pYKV*o@QaQP4hio<a7Z7WA*fG~A;`}V80hB}78>N6G%|TaI1T;*K{~BL<3-JDM+_O4pz~Mxgm;5JBtkblesrk6"
    "PNR+=6dW1;3()EeUV~!ee0+6E&+uP?pH{6L)IVAu{stVFn*XU*AJ`|%7!e*G77`rj@9X2K_E0HZ6^`~Y8>vJ@6*&%@AXpvcl6tLL"
    "nwy^e{HX3hZEfv?dv|VCTrVvtF8cBOxwEJLnVWO``@FOH`FTI&<Q5cPtE{PQw{i22ia?OJcnT=;Km8K@yBrbP@%N3Fnh`ZCejI19"
    "2!hS#aJW3aKq#UhwzieY9eO(VQmMWC0{TQm$9*_@(v11b)^6E*{9O4HqNgEY&idoGgnef1uJ)L7(tbhZkc-2rKhxFc?by8Q0)I-?"
    "vS{6)3|XOBSbo(ZEFB92#wHq-c7b2d$jkYxzweyL8%yW&|1zO^MK=CK=5pqOkP?<&k*ha3)KS7R)n2PFRi<Q#JA@_uiFL1(-FX}G"
    "W^O{>(I5TKcx!i#F?maOjx%|4H{Qfz@<uk3zu+)=1CPn;g-rff%;dFFCckUP+>o0+nY>iV<VC%i37_$2CYTk*OlV&Wn-O69FfN0q"
    "j}kEgE}baF=niuy+Y@v?b+QYWenDcgN`TWGhK%>NB4~B4?<lQ|M{@{E&^Zc;*Gm}Uv<fQ@{^|;^ep**s0oyE7JGe(5uU>W%9?>;`"
    "^a|+hVs9<ruyC`|1=QJ3rI1TSJT|LC>f%b3vxA*fBH*$KY5?UbTpi^-s1i?Ac!DbLVta+WhmEyFB;ZjVEZnY#gN&kLk$}&mJ^?J("
    "HY6pb1y4yap{<y?H4&{?3*N|X!JAo)>=&Hp+y;KV(A=Jg@5`#?)$%)zKdB473-o!R*-?k$wkNHgy=ckwwBdV<-+NwGRNB<?o)JxW"
    "3)YI7P!rN-Zq$$JEgEXVTdW?rRE*s=c3aAO!^;AVn$JjAy+)V^dO3gd!CW9H!S&1iO>@7k!yEcrT??I^X<1;wTcQ0OVc9VY{u{co"
    "Q(1OO%T8_CB`w7gE9rX`mX;m2zyb??<JZz63@xw-LyIu9;Qvin(*9nzY@P)cSYQ!`7Fh5egyFvcwi|D}"
)


def _unpack() -> dict[str, NDArray[np.float64]]:
    planes = np.frombuffer(zlib.decompress(base64.b85decode(_PACKED)), np.uint8).reshape(4, -1)
    flat = np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.float64)
    found, at = {}, 0
    for name, shape in _SHAPES:
        size = int(np.prod(shape))
        found[name] = flat[at : at + size].reshape(shape)
        at += size
    return found


_FOUND = _unpack()
WEIGHTS = _FOUND["WEIGHTS"]
EXPECTED = _FOUND["EXPECTED"]
TABLES = _FOUND["TABLES"]
FLAG_TABLES = _FOUND["FLAG_TABLES"]
FLAG_WEIGHTS = _FOUND["FLAG_WEIGHTS"]
OFFSETS = _FOUND["OFFSETS"]
POSITION = _FOUND["POSITION"]
ADJUST = _FOUND["ADJUST"]
